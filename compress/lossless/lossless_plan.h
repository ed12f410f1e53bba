// What a block of lossless.h will be like: the same on every processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/lossless/lossless_layout.h"

namespace gradwire {

struct LosslessPlan {
  unsigned width = 0;
  unsigned omitted = 0;
  std::size_t escapes = 0;
  std::size_t bytes = 0;  // of the whole block
};

constexpr std::size_t lossless_code_bytes(std::size_t count, unsigned width) {
  return (count * width + 7) / 8;
}

// How many mantissa bytes (and then tops) are zero in the whole block.
template <typename T>
constexpr unsigned lossless_omitted(typename LosslessLayout<T>::Bits any) {
  using Layout = LosslessLayout<T>;
  unsigned omitted = 0;
  while (omitted < Layout::kPlanes && (any >> (8 * omitted) & 0xff) == 0) ++omitted;
  const bool tops = (any & ~(static_cast<typename Layout::Bits>(Layout::kExponents - 1)
                             << Layout::kMantissa)) != 0;
  return tops ? omitted : Layout::kPlanes + 1;
}

// Of tops and planes.
template <typename T>
constexpr std::size_t lossless_tail_bytes(unsigned omitted, std::size_t count) {
  using Layout = LosslessLayout<T>;
  if (omitted > Layout::kPlanes) return 0;
  return lossless_code_bytes(count, Layout::kTopBits) + (Layout::kPlanes - omitted) * count;
}

// The width that costs least: an element whose code would be 2^w - 1 or more becomes an exception.
// escapes_of(w) says how many do.
template <typename T, typename EscapesOf>
constexpr LosslessPlan cheapest_plan(std::size_t count, unsigned omitted,
                                     const EscapesOf& escapes_of) {
  constexpr std::size_t kException = sizeof(typename LosslessLayout<T>::Exponent);
  LosslessPlan best;
  if (escapes_of(1) == 0) {  // all have one exponent
    best.omitted = omitted;
  } else {
    for (unsigned width = 1; width <= kMostCodeBits; ++width) {
      const std::size_t escapes = escapes_of(width);
      const std::size_t bytes = lossless_code_bytes(count, width) + escapes * kException;
      if (best.width == 0 || bytes < best.bytes) best = {width, omitted, escapes, bytes};
      if (escapes == 0) break;
    }
  }
  best.bytes += kLosslessHead<T> + lossless_tail_bytes<T>(omitted, count);
  return best;
}

}  // namespace gradwire
