// Two rounds for methods whose codes add up because all ranks use one scale:
//
//   round 0   max of fp32    scale{buckets}     every rank's own; what comes back is shared
//   round 1   sum of i32     words              codes on the shared scale, compress/shared_scale/
//                                               lane_words.h
//   mean = (2 sum - size most) half_unit / size
//
// A bucket that is not finite on any rank, or beyond fp32, has scale NaN on all of them, codes 0,
// and decodes to NaN. A scale that is negative or infinite is corrupt, and so is a sum above size *
// most.
#pragma once

#include <cstddef>
#include <string>

#include "base/text.h"
#include "compress/shared_scale/lane_words.h"
#include "gradwire/compressor.h"

namespace gradwire {

// Grid is a value with
//   static constexpr const char* kName;
//   std::size_t bucket_of(std::size_t rest) const;   elements of the next bucket, 1 ... rest, which
//                                                    share a scale; none is larger than the first
//   int most() const;                                codes are 0 ... most(), at most 255
//   static constexpr bool kPrepares;         prepare() makes what is coded, restore() undoes it
//   template <typename T> void prepare(const SliceKey&, std::size_t begin, std::span<T> x) const;
//   template <typename T> void restore(const SliceKey&, std::size_t begin, std::span<T> x) const;
//   bool needs_squares() const;              for
//   float scale_of(const BucketMagnitudes& prepared) const;   own scale; NaN: not finite
//   double half_unit(float scale, std::size_t elems) const;   what a step of 1 in 2 code is worth
//   template <typename T> void code(std::span<const T> prepared, float own, float scale,
//                                   std::size_t begin, Dither&, std::uint8_t* codes) const;
// own is what scale_of() gave, scale what ranks share: > 0, finite and not below own.
// `begin` counts elements of the tensor. prepare(), restore() and, if there is one, code() see
// whole buckets one by one; without prepare(), code() sees parts of them.
template <typename Grid>
std::size_t scale_count(const Grid& grid, std::size_t elems) {
  std::size_t count = 0;
  for (; elems > 0; ++count) elems -= grid.bucket_of(elems);
  return count;
}

inline RoundKind shared_scale_round(int round) {
  return round == 0 ? RoundKind{Exchange::kAllReduceMax, DType::kF32, true}
                    : RoundKind{Exchange::kAllReduceSum, DType::kI32, true};
}

template <typename Grid>
std::size_t shared_scale_bytes(const Grid& grid, std::size_t elems, int round, int size) {
  if (round == 0) return scale_count(grid, elems) * sizeof(float);
  return LaneWords(grid.most(), size).bytes(elems);
}

// kInvalidArgument unless `call` is the one whose turn it is after `absorbed` rounds of a step; -1:
// no step is under way.
inline Status check_shared_turn(const std::string& method, const char* call, int round,
                                int absorbed) {
  if (round == absorbed) return {};
  return {Code::kInvalidArgument,
          method + format(": %s of round %d out of turn (begin, then encode and absorb of rounds 0 "
                          "and 1, then finish)",
                          call, round)};
}

// kUnsupported when sums of so many ranks' codes fit no 32-bit word.
inline Status check_shared_lanes(const char* method, int most, int ranks) {
  if (LaneWords(most, ranks).fits()) return {};
  return {Code::kUnsupported, format("%s: sums of %d ranks' codes of up to %d fit no 32-bit word",
                                     method, ranks, most)};
}

}  // namespace gradwire
