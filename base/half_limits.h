// The largest finite values of fp16 and bfloat16.
#pragma once

namespace gradwire {

inline constexpr float kLargestFp16 = 65504;
inline constexpr float kLargestBf16 = 0x1.fep127F;

}  // namespace gradwire
