// How an element falls apart, for the encoder and the decoder of lossless.h.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "compress/lossless/lossless_kernels.h"

namespace gradwire {

inline constexpr unsigned kLosslessRaw = 0xff;
inline constexpr unsigned kMostCodeBits = 8;

template <typename T>
struct LosslessLayout;

template <>
struct LosslessLayout<float> {
  using Bits = std::uint32_t;
  using Exponent = std::uint8_t;
  static constexpr int kMantissa = 23;
  static constexpr unsigned kExponents = 256;
  static constexpr int kTopBits = 8;      // sign and the highest bits of the mantissa
  static constexpr unsigned kPlanes = 2;  // bytes of mantissa below them
};

template <>
struct LosslessLayout<double> {
  using Bits = std::uint64_t;
  using Exponent = std::uint16_t;
  static constexpr int kMantissa = 52;
  static constexpr unsigned kExponents = 2048;
  static constexpr int kTopBits = 5;
  static constexpr unsigned kPlanes = 6;
};

// head, base, escapes.
template <typename T>
constexpr std::size_t kLosslessHead = 1 + sizeof(typename LosslessLayout<T>::Exponent) + 2;

template <typename T>
struct LosslessParts {
  using Layout = LosslessLayout<T>;
  // Room for the groups of eight that codes are packed by.
  std::array<std::uint8_t, kLosslessBlock + 8> codes;
  std::array<std::uint8_t, kLosslessBlock + 8> tops;
  std::array<typename Layout::Exponent, kLosslessBlock> exponents;
  std::array<typename Layout::Bits, kLosslessBlock> bits;
};

}  // namespace gradwire
