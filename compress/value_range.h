// Smallest and largest element of a run, NaN and infinity seen on the way.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

namespace gradwire {

// What an encoder writes for a scale that stands for NaN.
inline constexpr std::uint32_t kNaNScaleBits = 0x7fc00000u;

template <typename T>
using SignedBits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

// Integers in the order of the numbers: -NaN < -infinity < ... < -0 < +0 < ... < infinity < NaN.
// Its own inverse.
template <typename T>
constexpr SignedBits<T> order_of(SignedBits<T> bits) {
  using S = SignedBits<T>;
  constexpr int kSign = 8 * sizeof(T) - 1;
  return bits ^ (static_cast<S>(bits >> kSign) & std::numeric_limits<S>::max());
}

template <typename T>
struct ValueRange {
  T low;
  T high;
  bool finite;
};

// x holds at least one element. low and high are those of a total order in which -0 < +0.
template <typename T>
ValueRange<T> range_of(std::span<const T> x) {
  using S = SignedBits<T>;
  S low = std::numeric_limits<S>::max();
  S high = std::numeric_limits<S>::min();
  const T* from = x.data();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const S key = order_of<T>(std::bit_cast<S>(from[i]));
    low = std::min(low, key);
    high = std::max(high, key);
  }
  const T least = std::bit_cast<T>(order_of<T>(low));
  const T most = std::bit_cast<T>(order_of<T>(high));
  return {least, most, std::isfinite(least) && std::isfinite(most)};
}
// By the best instruction set of the machine: compress/simd/statistics.cc.
template <>
ValueRange<float> range_of<float>(std::span<const float> x);

// The nearest fp32 at most `value`, and at least it. (Infinite where fp32 ends.)
constexpr float rounded_down(double value) {
  const auto near = static_cast<float>(value);
  if (!(static_cast<double>(near) > value)) return near;
  const auto bits = std::bit_cast<std::uint32_t>(near);
  return std::bit_cast<float>(near > 0 ? bits - 1 : bits + 1);
}
constexpr float rounded_up(double value) { return -rounded_down(-value); }

// What turns a magnitude of at most `scale` into levels: (x * before) * by. `before` is a power of
// two that keeps `by` a normal number for the smallest and largest scales. scale > 0.
template <typename T>
struct LevelFactors {
  T before;
  T by;
};
template <typename T>
constexpr LevelFactors<T> level_factors(float scale, T levels) {
  T before = 1;
  if constexpr (sizeof(T) == 4) {
    if (scale < 0x1p-90f) before = 0x1p64f;
    if (scale > 0x1p90f) before = 0x1p-64f;
  }
  return {before, levels / (static_cast<T>(scale) * before)};
}

}  // namespace gradwire
