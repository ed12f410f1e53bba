// Methods whose buckets of elements share a head, behind which their codes travel:
//
//   payload := bucket{m/B}
//   bucket  := head code{n}     n: the bucket's elements, B but in the last; codes of b bits, a
//                               little-endian bit stream, free bits of the last byte 0
//
// What such a method is to the kernels of bucket_threads.h and bucket_warps.h is a Grid, a value
// whose functions are constexpr:
//   std::int64_t bucket; int bits;       either b is 8 or B a multiple of 8
//   bool draws;                          whether codes depend on the element's 16 bits of dither.h
//   static constexpr int kHeadBytes
//   Extent                               what a head takes of the elements: Magnitude or Range
//   Head head_of(const Extent&) const    Heads are made and read by
//   void store(const Head&, std::byte*) const;  Head load(const std::byte*) const
//   bool coded(const Head&) const        false: all codes are 0
//   Coding coding_of(const Head&) const; unsigned code(const Coding&, float x, unsigned draw) const
//   Meaning meaning_of(const Head&) const; float value(const Meaning&, unsigned code) const
//   bool sound(const Head&) const; bool sound(const Meaning&, unsigned code) const   as received
//   static constexpr bool kGuards        whether some such grids send zeros instead of codes that
//                                        would be further from the elements; those that do have
//   bool guard; double excess(const Meaning&, float x, unsigned code) const, squared error less
//   square; bool surely(const Meaning&, std::int64_t count, double squares) const, no need to look;
//   float unit(const Meaning&) const; bool plainly(const Meaning&, std::int64_t count, float
//   squares) const, no need to ask surely(), by squares of elements times the unit, to 1 in 10^4.
//   A default Head then stands for zeros. Squares and excesses are added up in kGuardSums chains.
#pragma once

#include "base/philox.h"
#include "compress/cuda/slices.h"
#include "compress/value_range.h"

namespace gradwire::cuda {

// What kernels of buckets find.
enum BucketFinding : unsigned {
  kBucketNotFinite = 1,
  kBucketHead = 2,
  kBucketCode = 3,
  kBucketFreeBits = 4
};

// The largest magnitude, as bits: that of infinity, or more, where an element is not finite.
struct Magnitude {
  std::uint32_t most = 0;
  constexpr void see(float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  // Of all lanes.
  template <class Block>
  GW_DEVICE void join(Block& block) {
    for (unsigned step = 16; step > 0; step /= 2) {
      const std::uint32_t other = block.shuffle(most, block.lane() ^ step);
      most = other > most ? other : most;
    }
  }
};

// The smallest and the largest element, as integers in their order (value_range.h).
struct Range {
  std::int32_t low = 0x7fffffff;
  std::int32_t high = -0x7fffffff - 1;
  constexpr void see(float x) {
    const std::int32_t key = order_of<float>(std::bit_cast<std::int32_t>(x));
    low = key < low ? key : low;
    high = key > high ? key : high;
  }
  template <class Block>
  GW_DEVICE void join(Block& block) {
    for (unsigned step = 16; step > 0; step /= 2) {
      const std::int32_t less = block.shuffle(low, block.lane() ^ step);
      const std::int32_t more = block.shuffle(high, block.lane() ^ step);
      low = less < low ? less : low;
      high = more > high ? more : high;
    }
  }
};

template <class Grid>
constexpr std::int64_t bucket_bytes(const Grid& grid) {
  return Grid::kHeadBytes + (grid.bucket * grid.bits + 7) / 8;
}

inline constexpr int kGuardSums = 16;  // element i of a bucket belongs to chain i % 16

// The draw of element e of the tensor, as in dither.h.
constexpr unsigned half_word(const std::array<std::uint32_t, 4>& words, unsigned place) {
  return words[place / 2] >> (place % 2 * 16) & 0xffffu;
}
constexpr unsigned dither_of(const RandomStream& draws, std::uint64_t e) {
  return half_word(draws.block(e / 8), static_cast<unsigned>(e % 8));
}

}  // namespace gradwire::cuda
