// What a bucket's head and codes mean: what the encoder and the decoder have in common.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "compress/uniform/uniform_grid.h"
#include "compress/value_range.h"

namespace gradwire {

inline constexpr std::size_t kUniformChunk = 512;  // codes made at a time
using UniformCodes = std::array<std::uint8_t, kUniformChunk + 8>;

// What a code means: base + scale * ((code - zero) * step).
template <typename T>
struct UniformMeaning {
  T base;
  T scale;
  T zero;
  T step;
  T per_scale;  // levels that make one `scale`: 1/step before rounding

  constexpr T value(std::int32_t code) const {
    return base + scale * ((static_cast<T>(code) - zero) * step);
  }
};

template <typename T>
constexpr UniformMeaning<T> meaning_of(const UniformGrid& grid, float base, float scale) {
  const auto wide = static_cast<T>(scale);
  if (!grid.symmetric) {
    const auto levels = static_cast<T>(grid.levels());
    return {static_cast<T>(base), wide, T{0}, T{1} / levels, levels};
  }
  if (grid.bits == 1 && grid.stochastic) return {T{0}, wide, T{0.5}, T{2}, T{0.5}};
  if (grid.bits == 1) return {T{0}, wide, T{0.5}, T{1}, T{1}};
  const T half = static_cast<T>(grid.levels() / 2);
  return {T{0}, wide, half, T{1} / half, half};
}

// Before the codes of a bucket.
template <typename T>
struct UniformHead {
  float base = 0;
  float scale = 0;
  std::size_t low_at = 0;
  std::size_t high_at = 0;
  T low = 0;
  T high = 0;

  constexpr bool is_nan() const { return std::bit_cast<std::uint32_t>(scale) == kNaNScaleBits; }
};
}  // namespace gradwire
