// The emulation is a build with CUDA.
#pragma once

namespace gradwire {
inline constexpr bool kHaveCuda = true;
}  // namespace gradwire
