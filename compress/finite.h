// For methods whose codes have no room for NaN or infinity.
#pragma once

#include <cmath>
#include <span>
#include <string_view>

#include "base/text.h"
#include "gradwire/status.h"

namespace gradwire {

// kInvalidArgument that names the first element that is not finite; ok if all are.
template <typename T>
Status name_not_finite(std::string_view method, std::span<const T> x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(x[i])) continue;
    return {
        Code::kInvalidArgument,
        std::string(method) + format(": element %zu of the slice is %g (a finite number wanted)", i,
                                     static_cast<double>(x[i]))};
  }
  return {};
}

}  // namespace gradwire
