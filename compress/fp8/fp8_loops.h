// The inner loops of fp8 over part of a group. simd::, for fp32, takes the best instruction set of
// the machine and gives the bits that plain:: gives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tiny_floats.h"
#include "compress/fp8/fp8_kernels.h"
#include "compress/value_range.h"

namespace gradwire::cpu {

// What a code means: scale * (value * inverse).
template <typename T>
struct Fp8Meaning {
  T scale;
  T inverse;
};

namespace plain {

template <typename Float, typename T>
void fp8_codes_of(const LevelFactors<T>& factors, std::span<const T> x, std::uint8_t* codes) {
  const LevelFactors<T> by = factors;
  for (std::size_t i = 0; i < x.size(); ++i) {
    codes[i] = Float::from_float(static_cast<float>((x[i] * by.before) * by.by));
  }
}
template <typename T>
void fp8_codes(Fp8Type type, const LevelFactors<T>& factors, std::span<const T> x,
               std::uint8_t* codes) {
  if (type == Fp8Type::kE4M3) {
    fp8_codes_of<Float8E4M3>(factors, x, codes);
  } else {
    fp8_codes_of<Float8E5M2>(factors, x, codes);
  }
}

template <typename Float, typename T>
unsigned fp8_values_of(const Fp8Meaning<T>& meaning, const std::uint8_t* codes, const T* onto,
                       std::span<T> dst) {
  const Fp8Meaning<T> by = meaning;
  unsigned largest = 0;
  for (std::size_t i = 0; i < dst.size(); ++i) {
    largest = std::max(largest, codes[i] & Float::kMagnitudeMask);
    const T value = by.scale * (static_cast<T>(Float::to_float(codes[i])) * by.inverse);
    dst[i] = onto != nullptr ? onto[i] + value : value;
  }
  return largest;
}
// dst = what the codes stand for, added to `onto` unless that is null; onto may be dst. Returns the
// largest code without its sign.
template <typename T>
unsigned fp8_values(Fp8Type type, const Fp8Meaning<T>& meaning, const std::uint8_t* codes,
                    const T* onto, std::span<T> dst) {
  return type == Fp8Type::kE4M3 ? fp8_values_of<Float8E4M3>(meaning, codes, onto, dst)
                                : fp8_values_of<Float8E5M2>(meaning, codes, onto, dst);
}

}  // namespace plain

namespace simd {

void fp8_codes(Fp8Type type, const LevelFactors<float>& factors, std::span<const float> x,
               std::uint8_t* codes);
unsigned fp8_values(Fp8Type type, const Fp8Meaning<float>& meaning, const std::uint8_t* codes,
                    const float* onto, std::span<float> dst);

}  // namespace simd

// The loops for an element type.
template <typename T>
struct Fp8Loops {
  static constexpr auto kCodes = plain::fp8_codes<T>;
  static constexpr auto kValues = plain::fp8_values<T>;
};
template <>
struct Fp8Loops<float> {
  static constexpr auto kCodes = simd::fp8_codes;
  static constexpr auto kValues = simd::fp8_values;
};

}  // namespace gradwire::cpu
