// What qsgd computes of one norm and one element: the same bits on every processor.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/philox.h"
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

// The greatest integer that is not above a number far below 2^31.
template <typename T>
constexpr int floor_of(T x) {
  const auto whole = static_cast<int>(x);
  return static_cast<T>(whole) > x ? whole - 1 : whole;
}

// 256ths of a level, rounded down, and a first draw of 0 ... 255.
template <typename T>
constexpr int qsgd_sum(const QsgdScaling<T>& scaling, T x, int draw) {
  return floor_of((x * scaling.before) * scaling.by) + draw;
}
// Where sums end in this byte, what rounding down left of the element decides.
inline constexpr int kQsgdTie = 255;
constexpr bool qsgd_ties(int sum) { return (sum & 255) == kQsgdTie; }
constexpr std::uint8_t qsgd_code_of(int sum, int bits) {
  const int level = sum >> 8;
  return static_cast<std::uint8_t>((level < 0 ? -level : level) | (level < 0 ? 1 : 0)
                                                                      << (bits - 1));
}

// The second draw of element e of the tensor, in [0, 1). Its blocks are those that no first draw
// comes from.
template <typename T>
constexpr T qsgd_second_draw(const RandomStream& draws, std::uint64_t e) {
  const std::uint32_t word = draws.block<7>((std::uint64_t{1} << 63) + e / 4)[e % 4];
  return static_cast<T>(word >> 8) * static_cast<T>(0x1p-24);
}

// 1 with probability a - floor(a), else 0; `floor` is floor(a). An integer but for what computing
// it rounded counts as one, so that values on the grid need no luck and no level is above s. Of a
// negative number the distance to the integer above is what is exact, however small.
template <typename T>
constexpr int qsgd_carry(T a, int floor, const RandomStream& draws, std::uint64_t e) {
  const T rounded = (a < 0 ? -a : a) * (2 * std::numeric_limits<T>::epsilon());
  const T above = a - static_cast<T>(floor);
  const T below = static_cast<T>(floor + 1) - a;
  if (above <= rounded) return 0;
  if (below <= rounded) return 1;
  const bool negative = a < 0;
  const bool short_of = qsgd_second_draw<T>(draws, e) < (negative ? below : above);
  return short_of != negative ? 1 : 0;
}

// The code of element e, which is x, with a first draw of 0 ... 255.
template <typename T>
constexpr std::uint8_t qsgd_code(const QsgdScaling<T>& scaling, T x, int draw,
                                 const RandomStream& draws, std::uint64_t e, int bits) {
  const int sum = qsgd_sum(scaling, x, draw);
  if (!qsgd_ties(sum)) return qsgd_code_of(sum, bits);
  const T a = (x * scaling.before) * scaling.by;
  return qsgd_code_of(sum + qsgd_carry(a, sum - draw, draws, e), bits);
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
