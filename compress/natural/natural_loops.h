// The inner loops of natural. simd::, for fp32, takes the best instruction set of the machine and
// gives the bits that plain:: gives.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/little_endian.h"

namespace gradwire::cpu {

inline constexpr std::uint32_t kNaturalInfinity = 0x7f800000u;
inline constexpr std::uint32_t kNaturalNaN = 0x7fc00000u;
inline constexpr std::uint32_t kNaNExponent = 255;
// The window of bits=8, as exponent fields of fp32.
inline constexpr std::uint32_t kLeastExponent = 127 - 94;
inline constexpr std::uint32_t kNaNCode = 127;

namespace plain {

// What carries into the exponent of a mantissa: (h + 1/2) / 2^16 of 2^23.
inline std::uint32_t carry_of(const std::byte* draws, std::size_t i) {
  return static_cast<std::uint32_t>(load_le<std::uint16_t>(draws, i)) << 7 | 64u;
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
    const std::uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
    const std::uint32_t rounded = std::min((magnitude + carry_of(draws, i)) >> 23, 254u);
    exponents[i] =
        static_cast<std::uint8_t>(magnitude >= kNaturalInfinity ? kNaNExponent : rounded);
    signs[i / 8] = static_cast<std::uint8_t>(signs[i / 8] | (x[i] < 0 ? 1 : 0) << (i % 8));
  }
}

// Below the window, adding its least power of two makes a mantissa of x / 2^-94, which rounds to
// that power (standing for 0) or to twice it (standing for 2^-94).
template <typename T>
void natural_window(std::span<const T> x, const std::byte* draws, std::uint8_t* codes) {
  constexpr std::uint32_t kLeastBits = kLeastExponent << 23;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t bits = bits_of(x[i]);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t low = std::min(magnitude, kLeastBits);
    const auto lifted =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(low) + std::bit_cast<float>(kLeastBits));
    const std::uint32_t carry = carry_of(draws, i);
    const std::uint32_t below = ((lifted + carry) >> 23) - kLeastExponent;
    const std::uint32_t within = ((magnitude + carry) >> 23) - (kLeastExponent - 1);
    std::uint32_t code = magnitude < kLeastBits ? below : std::min(within, kNaNCode - 1);
    code = magnitude >= kNaturalInfinity ? kNaNCode : code;
    codes[i] = static_cast<std::uint8_t>(code | (bits >> 31) << 7);
  }
}

// dst = what the codes stand for, added to `onto` unless that is null; onto may be dst.
template <typename T>
void natural_values(const std::uint8_t* signs, const std::uint8_t* exponents, const T* onto,
                    std::span<T> dst) {
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const std::uint32_t exponent = exponents[i];
    const std::uint32_t magnitude = exponent == kNaNExponent ? kNaturalNaN : exponent << 23;
    const std::uint32_t sign = static_cast<std::uint32_t>(signs[i / 8]) >> (i % 8) << 31;
    const T value = static_cast<T>(std::bit_cast<float>(magnitude | sign));
    dst[i] = onto != nullptr ? onto[i] + value : value;
  }
}
template <typename T>
void natural_window_values(const std::uint8_t* codes, const T* onto, std::span<T> dst) {
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const std::uint32_t code = codes[i] & 127u;
    const std::uint32_t finite = code == 0 ? 0u : (code + (kLeastExponent - 1)) << 23;
    const std::uint32_t bits = (code == kNaNCode ? kNaturalNaN : finite) | (codes[i] >> 7 & 1u)
                                                                               << 31;
    const T value = static_cast<T>(std::bit_cast<float>(bits));
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
