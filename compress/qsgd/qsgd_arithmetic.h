// What qsgd computes of one norm and one element: the same bits on every processor.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "compress/qsgd/qsgd_kernels.h"
#include "compress/value_range.h"

namespace gradwire::cpu {

// What turns x into 256 levels: (x * before) * by. `before` is a power of two that keeps `by` a
// normal number for the smallest and largest norms.
template <typename T>
struct QsgdScaling {
  T before = 1;
  T by = 0;
};

// What turns a level into a magnitude: norm * (level * step).
template <typename T>
struct QsgdMagnitude {
  T norm = 0;
  T step = 0;
};

// A norm as it travels: fp32 and at least `norm` >= 0, or NaN.
constexpr float norm_that_travels(double norm) {
  if (!(norm <= static_cast<double>(std::numeric_limits<float>::max()))) {
    return std::bit_cast<float>(kNaNScaleBits);
  }
  const auto rounded = static_cast<float>(norm);
  return static_cast<double>(rounded) < norm
             ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(rounded) + 1)
             : rounded;
}

template <typename T>
constexpr QsgdScaling<T> scaling_of(float norm, int levels) {
  T before = 1;
  if constexpr (sizeof(T) == 4) {
    if (norm < 0x1p-90f) before = 0x1p64f;
    if (norm > 0x1p90f) before = 0x1p-64f;
  }
  return {before, static_cast<T>(256 * levels) / (static_cast<T>(norm) * before)};
}
template <typename T>
constexpr QsgdMagnitude<T> magnitude_of(float norm, int levels) {
  return {static_cast<T>(norm), T{1} / static_cast<T>(levels)};
}

// The nearest integer, ties to even, of a number far below 2^22.
template <typename T>
constexpr T nearest_integer(T x) {
  constexpr T kRounder = sizeof(T) == 4 ? T{0x1.8p23} : static_cast<T>(0x1.8p52);
  return (x + kRounder) - kRounder;
}

// The code of x, with a draw of 0 ... 255.
template <typename T>
constexpr std::uint8_t qsgd_code(const QsgdScaling<T>& scaling, T x, int draw, int bits) {
  const auto parts = static_cast<int>(nearest_integer((x * scaling.before) * scaling.by));
  const int level = (parts + draw) >> 8;
  return static_cast<std::uint8_t>((level < 0 ? -level : level) | (level < 0 ? 1 : 0)
                                                                      << (bits - 1));
}

template <typename T>
using QsgdBits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

// What a code stands for.
template <typename T>
constexpr T qsgd_value(const QsgdMagnitude<T>& to, int code, int bits) {
  const int level = code & ((1 << (bits - 1)) - 1);
  const T magnitude = to.norm * (static_cast<T>(level) * to.step);
  const auto sign = static_cast<QsgdBits<T>>(code >> (bits - 1)) << (8 * sizeof(T) - 1);
  return std::bit_cast<T>(std::bit_cast<QsgdBits<T>>(magnitude) ^ sign);
}

}  // namespace gradwire::cpu
