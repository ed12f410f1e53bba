// Floats of 4 to 8 bits: rounding to nearest even, saturating, in integer arithmetic: the same bits
// on every machine. Source: Micikevicius et al., "FP8 formats for deep learning", 2022 (e4m3,
// e5m2); OCP Microscaling Formats (MX) Specification 1.0, 2023, section 5.3 (e3m2, e2m3, e2m1).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace gradwire {

// Sign, ExponentBits, MantissaBits; LargestCode is that of the largest finite number, without sign.
// All is computed for every case and then selected, so that loops become vectors.
template <int ExponentBits, int MantissaBits, unsigned LargestCode>
struct TinyFloat {
  static constexpr int kBits = 1 + ExponentBits + MantissaBits;
  static constexpr int kMantissa = MantissaBits;
  static constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
  static constexpr unsigned kLargestCode = LargestCode;
  static constexpr unsigned kMagnitudeMask = (1u << (kBits - 1)) - 1;

  // Finite codes; infinities and NaN of e5m2 and the NaN of e4m3 lie above.
  static constexpr float to_float(unsigned code) {
    const std::uint32_t shifted = (code & kMagnitudeMask) << (23 - MantissaBits);
    const auto tiny = std::bit_cast<std::uint32_t>(
        std::bit_cast<float>(shifted + kLeastNormalBits) - std::bit_cast<float>(kLeastNormalBits));
    const std::uint32_t normal = shifted + (static_cast<std::uint32_t>(127 - kBias) << 23);
    const std::uint32_t magnitude = shifted < (1u << 23) ? tiny : normal;
    return std::bit_cast<float>(magnitude | static_cast<std::uint32_t>(code >> (kBits - 1)) << 31);
  }

  // Beyond the largest number: the largest. Infinity and NaN too, which callers keep away.
  static constexpr std::uint8_t from_float(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = std::min(bits & 0x7fffffffu, kLargestBits);
    // Below the least normal: let fp32 addition round to a multiple of the step there.
    const std::uint32_t low = magnitude < kLeastNormalBits ? magnitude : 0u;
    const std::uint32_t tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(low) +
                                                            std::bit_cast<float>(kStepAdderBits)) -
                               kStepAdderBits;
    constexpr int kDrop = 23 - MantissaBits;
    const std::uint32_t rounded =
        (magnitude + ((1u << (kDrop - 1)) - 1) + ((magnitude >> kDrop) & 1u)) >> kDrop;
    const std::uint32_t normal =
        rounded - (static_cast<std::uint32_t>(127 - kBias) << MantissaBits);
    const std::uint32_t code = magnitude < kLeastNormalBits ? tiny : normal;
    return static_cast<std::uint8_t>(code | (bits >> 31) << (kBits - 1));
  }

 private:
  static constexpr std::uint32_t power_of_two(int exponent) {
    return static_cast<std::uint32_t>(127 + exponent) << 23;
  }

 public:
  // As bits of fp32: the least normal number, what makes fp32 round to steps below it, the largest.
  static constexpr std::uint32_t kLeastNormalBits = power_of_two(1 - kBias);
  static constexpr std::uint32_t kStepAdderBits = power_of_two(1 - kBias - MantissaBits + 23);
  static constexpr std::uint32_t kLargestBits =
      (LargestCode << (23 - MantissaBits)) + (static_cast<std::uint32_t>(127 - kBias) << 23);
  static constexpr float kLargest = std::bit_cast<float>(kLargestBits);
};

using Float8E4M3 = TinyFloat<4, 3, 0x7e>;  // to 448
using Float8E5M2 = TinyFloat<5, 2, 0x7b>;  // to 57344
using Float6E3M2 = TinyFloat<3, 2, 0x1f>;  // to 28
using Float6E2M3 = TinyFloat<2, 3, 0x1f>;  // to 7.5
using Float4E2M1 = TinyFloat<2, 1, 0x07>;  // to 6

}  // namespace gradwire
