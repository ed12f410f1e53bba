// A count and its noun: "1 run", "3 runs".
#pragma once
#include <cstddef>
#include <string>

#include "base/text.h"

namespace gradwire {

inline std::string counted(std::size_t count, const char* noun) {
  return format("%zu %s%s", count, noun, count == 1 ? "" : "s");
}

}  // namespace gradwire
