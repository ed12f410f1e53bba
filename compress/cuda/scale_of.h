// What a bucket's scale is.
#pragma once

#include <cstdint>

namespace gradwire::cuda {

enum class ScaleOf : std::uint8_t {
  kLargest,        // magnitude
  kNormOrLargest,  // the L2 norm, never below that
  kClipped,        // the largest, or some root mean squares, whichever is less
  kNorm            // L2
};

}  // namespace gradwire::cuda
