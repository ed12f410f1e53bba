// Statistics of a bucket, the same bits on every machine.
#pragma once

#include <algorithm>
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

template <typename T>
double sum_of_squares(std::span<const T> x) {
  SquareSums sums;
  sums.add(x);
  return sums.total();
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

// Of clipping at `clip` root mean squares (about 0, so that a constant is not clipped to nothing)
// or at the largest magnitude, whichever is less; 0: of not clipping.
template <typename T>
float clipped_scale(std::span<const T> x, double clip) {
  if (clip == 0) return scale_above(largest_magnitude(x));
  constexpr std::size_t kRun = 4096;  // read twice, from the nearest cache the second time
  double largest = 0;
  SquareSums squares;
  for (std::size_t at = 0; at < x.size(); at += kRun) {
    const auto run = x.subspan(at, std::min(kRun, x.size() - at));
    const double most = largest_magnitude(run);
    if (std::isnan(most)) return kNaNScale;
    largest = std::max(largest, most);
    squares.add(run);
  }
  const double rms = std::sqrt(squares.total() / static_cast<double>(x.size()));
  return scale_above(std::min(largest, clip * rms));
}

}  // namespace gradwire
