// fp8, mx, natural, onebit and lossless one element at a time, from the formats' definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "tests/reference/bits_reference.h"
#include "tests/reference/uniform_reference.h"

namespace gradwire::testing {

// A float with so many bits of exponent and mantissa: its values in order of their codes.
struct TinyReference {
  int exponent_bits;
  int mantissa_bits;
  unsigned codes;  // finite ones, without sign

  double value(unsigned code) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = static_cast<int>(code >> mantissa_bits);
    const int mantissa = static_cast<int>(code & ((1u << mantissa_bits) - 1));
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  }
  // Nearest; of two equally near ones the even code; the largest for all beyond.
  unsigned nearest(double magnitude) const {
    unsigned best = 0;
    for (unsigned code = 1; code < codes; ++code) {
      const double nearer = std::abs(value(code) - magnitude) - std::abs(value(best) - magnitude);
      if (nearer < 0 || (nearer == 0 && code % 2 == 0)) best = code;
    }
    return best;
  }
  double largest() const { return value(codes - 1); }
  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  std::uint64_t code_of(float x) const {
    const unsigned sign = std::signbit(x) ? 1u << (bits() - 1) : 0;
    return nearest(std::abs(static_cast<double>(x))) | sign;
  }
};
inline constexpr TinyReference kE4M3{4, 3, 127};
inline constexpr TinyReference kE5M2{5, 2, 124};
inline constexpr TinyReference kE3M2{3, 2, 32};
inline constexpr TinyReference kE2M3{2, 3, 32};
inline constexpr TinyReference kE2M1{2, 1, 8};

template <typename T>
bool all_finite(std::span<const T> x) {
  return std::all_of(x.begin(), x.end(), [](T v) { return std::isfinite(v); });
}
template <typename T>
double largest_magnitude(std::span<const T> x) {
  double most = 0;
  for (const T v : x) most = std::max(most, std::abs(static_cast<double>(v)));
  return most;
}

template <typename T>
std::vector<std::uint8_t> fp8_reference(const TinyReference& tiny, std::size_t group,
                                        std::span<const T> x) {
  BitsReference out;
  for (std::size_t begin = 0; begin < x.size(); begin += group) {
    const auto part = x.subspan(begin, std::min(group, x.size() - begin));
    float scale = std::numeric_limits<float>::quiet_NaN();
    if (all_finite(part)) scale = UniformReference<T>::up(largest_magnitude(part));
    if (!std::isfinite(scale)) scale = std::numeric_limits<float>::quiet_NaN();
    out.put_value(scale);
    T before = 1;
    if (sizeof(T) == 4 && scale < 0x1p-90f) before = static_cast<T>(0x1p64);
    if (sizeof(T) == 4 && scale > 0x1p90f) before = static_cast<T>(0x1p-64);
    const T by = static_cast<T>(tiny.largest()) / (static_cast<T>(scale) * before);
    for (const T v : part) {
      out.put(scale > 0 ? tiny.code_of(static_cast<float>(v * before * by)) : 0, 8);
    }
  }
  return out.bytes();
}

template <typename T>
std::vector<std::uint8_t> mx_reference(const TinyReference& tiny, std::span<const T> x) {
  BitsReference out;
  for (std::size_t begin = 0; begin < x.size(); begin += 32) {
    const auto part = x.subspan(begin, std::min<std::size_t>(32, x.size() - begin));
    const double most = largest_magnitude(part);
    const bool nan = !all_finite(part) || most >= 0x1p128;
    int scale = 0;
    if (most > 0 && !nan) scale = std::max(0, std::ilogb(most) - std::ilogb(tiny.largest()) + 127);
    out.put_value(static_cast<std::uint8_t>(nan ? 255 : scale));
    for (const T v : part) {
      out.put(nan ? 0 : tiny.code_of(static_cast<float>(std::ldexp(v, 127 - scale))), tiny.bits());
    }
  }
  return out.bytes();
}

// x, which is finite, rounded to a power of two: its exponent, or the next one with the probability
// of the fraction; below 2^least that or zero (least - 1).
template <typename T>
int natural_exponent(T x, double draw, int least, int most) {
  const float magnitude = std::abs(static_cast<float>(x));
  const float smallest = std::ldexp(1.0f, least);
  if (magnitude < smallest) {
    const double fraction = (magnitude + smallest) / smallest - 1.0f;
    return draw >= 1 - fraction ? least : least - 1;
  }
  const int exponent = std::ilogb(magnitude);
  const double fraction = std::ldexp(static_cast<double>(magnitude), -exponent) - 1;
  return std::min(exponent + (draw >= 1 - fraction ? 1 : 0), most);
}

template <typename T>
std::vector<std::uint8_t> natural_reference(const SliceKey& key, int bits, std::span<const T> x) {
  BitsReference out;
  const int least = bits == 9 ? -126 : -94;
  const int most = bits == 9 ? 127 : 31;
  if (bits == 9) {
    for (const T v : x) out.put(v < 0 ? 1 : 0, 1);
    out.align();
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool nan = !std::isfinite(static_cast<float>(x[i]));
    const int field =
        nan ? (bits == 9 ? 255 : 127)
            : natural_exponent(x[i], dither_reference(key, i), least, most) - least + 1;
    out.put(static_cast<std::uint64_t>(field), bits - 1);
    if (bits == 8) out.put(std::signbit(x[i]) ? 1 : 0, 1);
  }
  return out.bytes();
}

template <typename T>
std::vector<std::uint8_t> onebit_reference(std::size_t group, std::span<const T> x) {
  BitsReference out;
  for (std::size_t begin = 0; begin < x.size(); begin += group) {
    const auto part = x.subspan(begin, std::min(group, x.size() - begin));
    double lanes[2][16] = {};
    double counts[2] = {};
    for (std::size_t i = 0; i < part.size(); ++i) {
      const int side = part[i] < 0 ? 1 : 0;
      lanes[side][i % 16] += std::abs(static_cast<double>(part[i]));
      counts[side] += 1;
    }
    for (int side = 0; side < 2; ++side) {
      double sum = 0;
      for (const double lane : lanes[side]) sum += lane;
      out.put_value(counts[side] == 0 ? T{0} : static_cast<T>(sum / counts[side]));
    }
    for (const T v : part) out.put(v < 0 ? 1 : 0, 1);
    out.align();
  }
  return out.bytes();
}

}  // namespace gradwire::testing
