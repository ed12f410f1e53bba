// What an element of natural is to host and device alike.
#pragma once

#include <bit>
#include <cstdint>

namespace gradwire::cpu {

inline constexpr std::uint32_t kNaturalInfinity = 0x7f800000u;
inline constexpr std::uint32_t kNaturalNaN = 0x7fc00000u;
inline constexpr std::uint32_t kNaNExponent = 255;
// The window of bits=8, as exponent fields of fp32.
inline constexpr std::uint32_t kLeastExponent = 127 - 94;
inline constexpr std::uint32_t kNaNCode = 127;

// What carries into the exponent of a mantissa: (h + 1/2) / 2^16 of 2^23.
constexpr std::uint32_t natural_carry(std::uint32_t draw) { return draw << 7 | 64u; }

// Of a float's bits. Subnormal numbers round to 0 or to 2^-126 by the same addition.
constexpr std::uint8_t natural_exponent(std::uint32_t bits, std::uint32_t carry) {
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t rounded = (magnitude + carry) >> 23;
  if (magnitude >= kNaturalInfinity) return kNaNExponent;
  return static_cast<std::uint8_t>(rounded < 254 ? rounded : 254);
}

// Below the window, adding its least power of two makes a mantissa of x / 2^-94, which rounds to
// that power (standing for 0) or to twice it (standing for 2^-94).
constexpr std::uint8_t natural_window_code(std::uint32_t bits, std::uint32_t carry) {
  constexpr std::uint32_t kLeastBits = kLeastExponent << 23;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t low = magnitude < kLeastBits ? magnitude : kLeastBits;
  const auto lifted =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(low) + std::bit_cast<float>(kLeastBits));
  const std::uint32_t below = ((lifted + carry) >> 23) - kLeastExponent;
  const std::uint32_t within = ((magnitude + carry) >> 23) - (kLeastExponent - 1);
  std::uint32_t code =
      magnitude < kLeastBits ? below : (within < kNaNCode - 1 ? within : kNaNCode - 1);
  code = magnitude >= kNaturalInfinity ? kNaNCode : code;
  return static_cast<std::uint8_t>(code | (bits >> 31) << 7);
}

// `sign`: 1 for negative ones.
constexpr float natural_value(std::uint32_t exponent, std::uint32_t sign) {
  const std::uint32_t magnitude = exponent == kNaNExponent ? kNaturalNaN : exponent << 23;
  return std::bit_cast<float>(magnitude | sign << 31);
}
constexpr float natural_window_value(std::uint32_t coded) {
  const std::uint32_t code = coded & 127u;
  const std::uint32_t finite = code == 0 ? 0u : (code + (kLeastExponent - 1)) << 23;
  return std::bit_cast<float>((code == kNaNCode ? kNaturalNaN : finite) | (coded >> 7 & 1u) << 31);
}

}  // namespace gradwire::cpu
