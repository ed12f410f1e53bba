// Levels -s ... s of a scale, rounded stochastically: code = s + level.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/dither.h"
#include "compress/shared_scale/shared_scale_loops.h"

namespace gradwire {

// a = min(|x|, clip) s / scale (at most s); level = floor(a) + [u < a - floor(a)] with u = (h +
// 1/2) / 2^16 and h the element's draw. Elements begin, begin + 1, ... of the slice. scale > 0,
// finite.
template <typename T>
void code_levels(std::span<const T> x, T clip, float scale, int s, std::size_t begin,
                 Dither& dither, std::uint8_t* codes) {
  const auto [before, by] = level_factors<T>(scale, static_cast<T>(s));
  const LevelPlace<T> place{clip, before, by, static_cast<T>(s)};
  for (std::size_t done = 0; done < x.size(); done += Dither::kMost) {
    const auto part = x.subspan(done, std::min(Dither::kMost, x.size() - done));
    cpu::code_levels<T>(place, part, dither.of(begin + done, part.size()), codes + done);
  }
}

}  // namespace gradwire
