// Levels -s ... s of a scale, rounded stochastically: code = s + level.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/dither.h"
#include "compress/value_range.h"

namespace gradwire {

// a = |x| s / scale (at most s); level = floor(a) + [u < a - floor(a)] with u = (h + 1/2) / 2^16
// and h the element's draw. Elements begin, begin + 1, ... of the slice. scale > 0, finite.
template <typename T>
void code_levels(std::span<const T> x, float scale, int s, std::size_t begin, Dither& dither,
                 std::uint8_t* codes) {
  const auto [before, by] = level_factors<T>(scale, static_cast<T>(s));
  for (std::size_t done = 0; done < x.size(); done += Dither::kMost) {
    const auto part = x.subspan(done, std::min(Dither::kMost, x.size() - done));
    const std::byte* draws = dither.of(begin + done, part.size());
    for (std::size_t i = 0; i < part.size(); ++i) {
      const T a = std::min(std::abs(part[i]) * before * by, static_cast<T>(s));
      const int whole = static_cast<int>(a);
      const T u = (static_cast<T>(load_le<std::uint16_t>(draws, i)) + T{0.5}) * T{0x1p-16};
      const int level = whole + (u < a - static_cast<T>(whole) ? 1 : 0);
      codes[done + i] = static_cast<std::uint8_t>(s + (part[i] < 0 ? -level : level));
    }
  }
}

}  // namespace gradwire
