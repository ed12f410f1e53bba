// Which places all ranks choose at a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/philox.h"

namespace gradwire {

// floor(fraction * bound), fraction = (high, low) / 2^64; bound <= 2^32.
constexpr std::uint64_t place_below(std::uint64_t bound, std::uint32_t high, std::uint32_t low) {
  return (high * bound + (low * bound >> 32)) >> 32;
}

// Fills `places` with that many of 0 ... elems - 1, ascending, every subset with the same
// probability (to 2^-32): draw i, of words 2 i (high) and 2 i + 1 (low) of the stream as a 64-bit
// fraction times j + 1, j = elems - k + i, is chosen, or j if it was chosen before. places.size()
// <= elems <= 2^32. `seen` is kept between calls for its memory: one bit an element.
void draw_places(const RandomStream& stream, std::size_t elems, std::span<std::uint32_t> places,
                 std::vector<std::uint64_t>& seen);

}  // namespace gradwire
