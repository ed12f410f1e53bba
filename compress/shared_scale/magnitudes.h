// Statistics of a bucket, the same bits on every machine.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>

#include "compress/simd/statistics.h"
#include "compress/value_range.h"

namespace gradwire {

inline constexpr float kNaNScale = std::bit_cast<float>(kNaNScaleBits);

// Squares are added in double, element i to partial sum i % 16; the sixteen are folded in halves.
template <typename T>
double sum_of_squares(std::span<const T> x) {
  if constexpr (std::is_same_v<T, float>) return cpu::sum_of_squares(x);
  constexpr std::size_t kSums = 16;
  std::array<double, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= x.size(); i += kSums) {
    for (std::size_t j = 0; j < kSums; ++j) {
      const auto value = static_cast<double>(x[i + j]);
      sums[j] += value * value;
    }
  }
  for (std::size_t j = 0; i + j < x.size(); ++j) {
    const auto value = static_cast<double>(x[i + j]);
    sums[j] += value * value;
  }
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

// The largest magnitude; NaN if an element is not finite. x holds at least one element.
template <typename T>
double largest_magnitude(std::span<const T> x) {
  if constexpr (std::is_same_v<T, float>) {
    const float largest = cpu::largest_magnitude(Corrected<float>(x));
    return std::isfinite(largest) ? static_cast<double>(largest)
                                  : std::numeric_limits<double>::quiet_NaN();
  }
  const ValueRange<T> range = range_of(x);
  if (!range.finite) return std::numeric_limits<double>::quiet_NaN();
  return std::max(std::abs(static_cast<double>(range.low)),
                  std::abs(static_cast<double>(range.high)));
}

// The least fp32 that is not below `value`; the quiet NaN for NaN and for what fp32 does not reach.
inline float scale_above(double value) {
  if (!(value <= static_cast<double>(std::numeric_limits<float>::max()))) return kNaNScale;
  return rounded_up(value);
}

// Of clipping at `clip` root mean squares (about 0, so that a constant is not clipped to nothing);
// 0: no clipping. What is left of the largest magnitude.
template <typename T>
float clipped_scale(std::span<const T> x, double clip) {
  const double largest = largest_magnitude(x);
  if (clip == 0 || std::isnan(largest)) return scale_above(largest);
  const double rms = std::sqrt(sum_of_squares(x) / static_cast<double>(x.size()));
  return scale_above(std::min(largest, clip * rms));
}

}  // namespace gradwire
