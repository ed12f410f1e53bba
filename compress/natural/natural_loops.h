// The inner loops of natural. simd::, for fp32, takes the best instruction set of the machine and
// gives the bits that plain:: gives.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/little_endian.h"
#include "compress/natural/natural_arithmetic.h"

namespace gradwire::cpu {

namespace plain {

inline std::uint32_t carry_of(const std::byte* draws, std::size_t i) {
  return natural_carry(load_le<std::uint16_t>(draws, i));
}
template <typename T>
std::uint32_t bits_of(T x) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(x));
}

// Two bytes of `draws` an element, as in dither.h; bit i % 8 of signs[i / 8]: x[i] < 0, unused bits
// 0. Subnormal numbers round to 0 or to 2^-126 by the same addition.
template <typename T>
void natural_exponents(std::span<const T> x, const std::byte* draws, std::uint8_t* signs,
                       std::uint8_t* exponents) {
  std::fill_n(signs, (x.size() + 7) / 8, std::uint8_t{0});
  for (std::size_t i = 0; i < x.size(); ++i) {
    exponents[i] = natural_exponent(bits_of(x[i]), carry_of(draws, i));
    signs[i / 8] = static_cast<std::uint8_t>(signs[i / 8] | (x[i] < 0 ? 1 : 0) << (i % 8));
  }
}

template <typename T>
void natural_window(std::span<const T> x, const std::byte* draws, std::uint8_t* codes) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    codes[i] = natural_window_code(bits_of(x[i]), carry_of(draws, i));
  }
}

// dst = what the codes stand for, added to `onto` unless that is null; onto may be dst.
template <typename T>
void natural_values(const std::uint8_t* signs, const std::uint8_t* exponents, const T* onto,
                    std::span<T> dst) {
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const T value = static_cast<T>(natural_value(exponents[i], signs[i / 8] >> (i % 8) & 1u));
    dst[i] = onto != nullptr ? onto[i] + value : value;
  }
}
template <typename T>
void natural_window_values(const std::uint8_t* codes, const T* onto, std::span<T> dst) {
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const T value = static_cast<T>(natural_window_value(codes[i]));
    dst[i] = onto != nullptr ? onto[i] + value : value;
  }
}

}  // namespace plain

namespace simd {

void natural_exponents(std::span<const float> x, const std::byte* draws, std::uint8_t* signs,
                       std::uint8_t* exponents);
void natural_window(std::span<const float> x, const std::byte* draws, std::uint8_t* codes);
void natural_values(const std::uint8_t* signs, const std::uint8_t* exponents, const float* onto,
                    std::span<float> dst);
void natural_window_values(const std::uint8_t* codes, const float* onto, std::span<float> dst);

}  // namespace simd

// The loops for an element type.
template <typename T>
struct NaturalLoops {
  static constexpr auto kExponents = plain::natural_exponents<T>;
  static constexpr auto kWindow = plain::natural_window<T>;
  static constexpr auto kValues = plain::natural_values<T>;
  static constexpr auto kWindowValues = plain::natural_window_values<T>;
};
template <>
struct NaturalLoops<float> {
  static constexpr auto kExponents = simd::natural_exponents;
  static constexpr auto kWindow = simd::natural_window;
  static constexpr auto kValues = simd::natural_values;
  static constexpr auto kWindowValues = simd::natural_window_values;
};

}  // namespace gradwire::cpu
