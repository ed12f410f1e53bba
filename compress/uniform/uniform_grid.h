// The layout that minmax and absmax share: each bucket of a slice on a uniform grid of its own.
//
//   payload := bucket{m/B}                  for a slice of m elements; buckets start at its start
//   bucket  := [base] scale [spikes] codes{n b / 8}    n: the bucket's elements, B but in the last
//   base    := fp32, finite or 0x7fc00000   minmax only: the smallest element
//   scale   := fp32, finite and >= 0, or 0x7fc00000
//   spikes  := low_at:u16 high_at:u16 low high         with spikes=1; low, high in the gradient's
//              type: the bucket's smallest element (the first of several) and its largest (the
//              first at another place); both are place 0 when n = 1. Their codes are 0 and mean
//              nothing
//   codes   := code{n}, a little-endian bit stream of b bits each; free bits of the last byte are 0
//
// A code l in 0 ... L decodes to base + scale * ((l - zero) * (1/L')), computed in the element's
// type from left to right, the innermost bracket first:
//   minmax           base = min, scale = max - min (rounded up to fp32), zero = 0, L' = L = 2^b - 1
//   absmax, b >= 2   base = 0, scale = max |x| (rounded up), zero = L' = 2^(b-1) - 1, L = 2 L'
//   absmax, b = 1    L = 1, codes decode to -scale and +scale (stochastic), -scale/2 and +scale/2
//                    (nearest)
// The encoder takes the nearest code, ties to even, or (rounding=stochastic) the one below plus
// [draw < fraction], draws as in dither.h. A bucket with a NaN or an infinity, or with a scale
// beyond fp32, has base and scale 0x7fc00000, spikes and codes 0, and decodes to NaN as a whole.
//
// guard: with nearest rounding, a bucket whose codes would decode to a larger squared error than
// zeros has is sent as base = scale = 0 (sums in double over 16 lanes as in qsgd). Without it
// nothing bounds the error of a coarse grid that has no level near zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/kernel_format.h"

namespace gradwire {

struct UniformGrid {
  int bits = 8;              // 1 ... 8
  std::size_t bucket = 512;  // a multiple of 8, at most kMostUniformBucket; with hadamard a power
                             // of two
  bool symmetric = false;    // absmax
  bool stochastic = false;
  bool spikes = false;
  bool hadamard = false;
  bool guard = false;

  constexpr int levels() const {
    return !symmetric || bits == 1 ? (1 << bits) - 1 : (1 << bits) - 2;
  }
};
inline constexpr std::size_t kMostUniformBucket = 65536;  // places of spikes are 16 bits

// Of a bucket, before its codes.
constexpr std::size_t uniform_head_bytes(const UniformGrid& grid, std::size_t element_bytes) {
  return (grid.symmetric ? 4 : 8) + (grid.spikes ? 4 + 2 * element_bytes : 0);
}

// A kernel in the sense of kernel_format.h.
struct UniformKernel {
  UniformGrid grid;

  std::size_t bytes(std::size_t elems, std::size_t element_bytes) const {
    const std::size_t buckets = (elems + grid.bucket - 1) / grid.bucket;
    return buckets * uniform_head_bytes(grid, element_bytes) +
           (elems * static_cast<std::size_t>(grid.bits) + 7) / 8;
  }
  // A multiple of 8: parts begin at a byte.
  std::int64_t seam() const { return static_cast<std::int64_t>(grid.bucket); }
  // Never fails.
  template <typename T>
  Status encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const;
  template <typename T>
  Status decode(const SliceKey& key, ConstByteSpan wire, bool add, std::span<T> dst) const;
  template <typename T>
  Status encode_with_feedback(const SliceKey& key, const Corrected<T>& p, T* next, T own_scale,
                              ByteSpan wire) const;
  template <typename T>
  Status fold(const SliceKey& key, std::span<const KernelAddend<T>> addends, std::size_t elems,
              ByteSpan wire) const;
};

}  // namespace gradwire
