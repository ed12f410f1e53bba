// Small whole numbers that any all-reduce of 32-bit integers adds without decoding: several to a
// word, each in a lane that holds the sum over all ranks, so that no addition carries into the
// next.
//
//   words := i32{m / lanes}                32 / width lanes in a word, the first in the low bits;
//                                          lanes beyond the m-th and bits beyond the last lane are
//                                          0
//   width := bits of size * most           `most`: the largest code of one rank
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gradwire/tensor.h"

namespace gradwire {

class LaneWords {
 public:
  // Codes 0 ... most of `size` ranks. most >= 1.
  LaneWords(int most, int size)
      : limit_(static_cast<std::uint64_t>(most) * static_cast<std::uint64_t>(size)),
        width_(static_cast<int>(std::bit_width(limit_))) {}

  // Does a sum fit into a word?
  bool fits() const { return width_ <= 32; }
  int width() const { return width_; }
  std::uint64_t limit() const { return limit_; }  // of a sum
  std::size_t lanes() const { return fits() ? 32 / static_cast<std::size_t>(width_) : 1; }
  std::size_t bytes(std::size_t codes) const { return 4 * ((codes + lanes() - 1) / lanes()); }

  // Writes bytes(codes.size()) bytes. Requires fits().
  void pack(std::span<const std::uint8_t> codes, std::byte* words) const;

 private:
  std::uint64_t limit_;
  int width_;
};

}  // namespace gradwire
