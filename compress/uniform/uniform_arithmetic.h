// What minmax and absmax compute of a bucket's range and of one element: the same bits on every
// processor.
#pragma once

#include <cstdint>

#include "compress/uniform/uniform_loops.h"

namespace gradwire {

template <typename T>
constexpr bool is_number(T x) {  // neither infinite nor NaN
  return x - x == T{0};
}

// Base and scale of a grid over the range; NaN if fp32 cannot hold it.
template <typename T>
constexpr void set_grid(const UniformGrid& grid, const ValueRange<T>& range, UniformHead<T>& head) {
  const float nan = std::bit_cast<float>(kNaNScaleBits);
  if (range.finite) {
    const auto low = static_cast<double>(range.low);
    const auto high = static_cast<double>(range.high);
    if (grid.symmetric) {
      const double below = low < 0 ? -low : low + 0.0;  // of -0: 0
      const double above = high < 0 ? -high : high + 0.0;
      head.scale = rounded_up(below > above ? below : above);
    } else {
      head.base = rounded_down(low);
      head.scale = rounded_up(high - static_cast<double>(head.base));
    }
    // The largest code must not decode to more than a float holds.
    const UniformMeaning<T> meaning = meaning_of<T>(grid, head.base, head.scale);
    if (is_number(head.base) && is_number(head.scale) && is_number(meaning.value(grid.levels()))) {
      return;
    }
  }
  head = {};
  head.base = nan;
  head.scale = nan;
}

template <typename T>
constexpr cpu::UniformPlace<T> place_on(const UniformGrid& grid, const UniformMeaning<T>& meaning,
                                        float scale) {
  const LevelFactors<T> factors = level_factors<T>(scale, meaning.per_scale);
  return {meaning.base, factors.before, factors.by, meaning.zero, static_cast<T>(grid.levels())};
}

// Squared error minus square: what a code costs more than a zero would.
template <typename T>
constexpr double excess_of(const UniformMeaning<T>& meaning, T x, std::int32_t code) {
  const auto value = static_cast<double>(x);
  const double error = static_cast<double>(meaning.value(code)) - value;
  return error * error - value * value;
}

// Whether the largest possible error, half a level in every element, is within the sum of squares:
// then nothing needs to be added up exactly.
template <typename T>
constexpr bool surely_better_than_zeros(const UniformMeaning<T>& meaning, std::size_t count,
                                        double squares) {
  const double half =
      static_cast<double>(meaning.scale) / static_cast<double>(meaning.per_scale) / 2;
  constexpr double kRounding = 1.001;
  return static_cast<double>(count) * half * half * kRounding <= squares;
}

// The same of a sum in units of the scale's square that may be off by 1 in 10^4, in any order:
// where this holds, so does that.
template <typename T>
constexpr bool plainly_better_than_zeros(const UniformMeaning<T>& meaning, std::size_t count,
                                         float squares) {
  const float half = 0.5f / static_cast<float>(meaning.per_scale);
  constexpr float kRounding = 1.002f;
  return static_cast<float>(count) * half * half * kRounding <= squares;
}

}  // namespace gradwire
