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

// The largest magnitude of a bucket and, if wanted, the sum of its squares, run by run while those
// lie in the nearest cache.
class BucketMagnitudes {
 public:
  static constexpr std::size_t kRun = 4096;  // elements at a time

  explicit BucketMagnitudes(bool squares) : with_squares_(squares) {}

  // At least one element; calls but the last take multiples of 16.
  template <typename T>
  void add(std::span<const T> x) {
    for (std::size_t at = 0; at < x.size(); at += kRun) {
      const auto run = x.subspan(at, std::min(kRun, x.size() - at));
      const double most = largest_magnitude(run);
      finite_ &= !std::isnan(most);
      largest_ = std::max(largest_, most);
      if (with_squares_) squares_.add(run);
      elems_ += run.size();
    }
  }
  // NaN if an element is not finite.
  double largest() const { return finite_ ? largest_ : std::numeric_limits<double>::quiet_NaN(); }
  // The L2 norm, NaN as largest(). Requires squares.
  double norm() const { return finite_ ? root(1) : largest(); }
  // Of clipping at `clip` root mean squares (about 0, so that a constant is not clipped to nothing)
  // or at the largest magnitude, whichever is less; 0: of not clipping. Requires squares unless 0.
  double clipped(double clip) const {
    if (clip == 0 || !finite_) return largest();
    return std::min(largest_, clip * root(static_cast<double>(elems_)));
  }

 private:
  double root(double parts) const { return std::sqrt(squares_.total() / parts); }

  bool with_squares_;
  bool finite_ = true;
  double largest_ = 0;
  SquareSums squares_;
  std::size_t elems_ = 0;
};

}  // namespace gradwire
