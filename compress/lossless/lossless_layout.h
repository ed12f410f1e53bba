// How an element falls apart, for the encoder and the decoder of lossless.h.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "compress/little_endian.h"
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
  std::array<typename Layout::Exponent, kLosslessBlock> distances;  // base - exponent
  std::array<typename Layout::Bits, kLosslessBlock> bits;
};

// Asks for `bytes` of memory two pages ahead: hardware prefetchers stop where a page ends.
inline void fetch_ahead(const void* from, std::size_t bytes) {
  const auto* ahead = static_cast<const std::byte*>(from) + 8192;
  for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(ahead + i);
}

// Calls visit(i) for every i < count whose code is `escape`. codes has kLosslessBlock + 8 entries,
// and eight at a time are looked at.
template <typename Visit>
void for_each_escape(const std::uint8_t* codes, std::size_t count, unsigned escape,
                     const Visit& visit) {
  constexpr std::uint64_t kOnes = 0x0101010101010101u;
  constexpr std::uint64_t kLow = 0x7f * kOnes;
  for (std::size_t i = 0; i < count; i += 8) {
    const std::uint64_t different =
        load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(codes + i)) ^ (kOnes * escape);
    // The highest bit of every byte that is 0.
    std::uint64_t same = ~(((different & kLow) + kLow) | different | kLow);
    for (; same != 0; same &= same - 1) {
      const std::size_t at = i + static_cast<std::size_t>(std::countr_zero(same)) / 8;
      if (at < count) visit(at);
    }
  }
}

// How many codes or distances of a block are at least `least`. Entries from `count` to
// kLosslessBlock are 0, and least > 0.
template <typename U>
std::size_t count_at_least(const U* values, unsigned least) {
  constexpr std::size_t kLanes = 64;
  std::array<U, kLanes> lanes{};
  for (std::size_t i = 0; i < kLosslessBlock; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      lanes[j] = static_cast<U>(lanes[j] + (values[i + j] >= least ? 1 : 0));
    }
  }
  std::size_t sum = 0;
  for (const U lane : lanes) sum += lane;
  return sum;
}

}  // namespace gradwire
