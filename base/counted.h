// A count and its noun: "1 run", "3 runs", "2 batches".
#pragma once
#include <cstdint>
#include <string>

#include "base/text.h"

namespace gradwire {

// `several`: the ending of the noun's plural.
inline std::string counted(std::int64_t count, const char* noun, const char* several = "s") {
  return format("%lld %s%s", static_cast<long long>(count), noun, count == 1 ? "" : several);
}

}  // namespace gradwire
