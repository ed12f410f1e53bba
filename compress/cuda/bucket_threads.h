// The plain kernels of methods with buckets (bucket_grid.h): a thread for each head, then one for
// each eight codes. Right for every grid and every beginning.
#pragma once

#include "compress/cuda/bucket_grid.h"

namespace gradwire::cuda {

// Writes heads: one bucket a thread.
template <class Grid>
struct BucketHeads {
  static constexpr unsigned kThreads = 128;
  using Shared = NothingShared;

  Source source;
  Grid grid;
  std::byte* wire;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t b = block.block() * kThreads + block.thread();
    const std::int64_t begin = b * grid.bucket;
    if (begin >= source.count) return;
    const std::int64_t end =
        begin + grid.bucket < source.count ? begin + grid.bucket : source.count;
    typename Grid::Extent extent;
    for (std::int64_t i = begin; i < end; ++i) extent.see(source.at(i));
    auto head = grid.head_of(extent);
    if constexpr (Grid::kGuards) {
      if (grid.guard && grid.coded(head) && zeros_are_closer(head, begin, end)) head = {};
    }
    grid.store(head, wire + b * bucket_bytes(grid));
  }

  GW_DEVICE bool zeros_are_closer(const typename Grid::Head& head, std::int64_t begin,
                                  std::int64_t end) const {
    const auto coding = grid.coding_of(head);
    const auto meaning = grid.meaning_of(head);
    double squares[kGuardSums] = {};
    double excess[kGuardSums] = {};
    for (std::int64_t row = begin; row < end; row += kGuardSums) {
      for (int j = 0; j < kGuardSums; ++j) {  // of constant length: the sums stay in registers
        if (row + j >= end) continue;
        const float x = source.at(row + j);
        squares[j] += static_cast<double>(x) * static_cast<double>(x);
        excess[j] += grid.excess(meaning, x, grid.code(coding, x, 0));
      }
    }
    for (int half = kGuardSums / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) squares[j] += squares[j + half];
    }
    double sum = 0;
    for (const double part : excess) sum += part;
    return !grid.surely(meaning, end - begin, squares[0]) && sum > 0;
  }
};

// Where the eight codes, or fewer, of a thread lie.
struct EightCodes {
  std::int64_t bucket;
  std::int64_t begin;  // element of the slice
  std::int64_t place;  // of the codes in the payload
  int count;           // of codes; none: nothing to do

  template <class Grid>
  static constexpr EightCodes of(const Grid& grid, std::int64_t group, std::int64_t elems) {
    const std::int64_t each = (grid.bucket + 7) / 8;
    const std::int64_t b = group / each;
    const std::int64_t within = 8 * (group % each);
    const std::int64_t begin = b * grid.bucket + within;
    std::int64_t count = grid.bucket - within < 8 ? grid.bucket - within : 8;
    count = elems - begin < count ? elems - begin : count;
    return {b, begin, b * bucket_bytes(grid) + Grid::kHeadBytes + within / 8 * grid.bits,
            count < 0 ? 0 : static_cast<int>(count)};
  }
  template <class Grid>
  static constexpr std::int64_t groups(const Grid& grid, std::int64_t elems) {
    return (elems + grid.bucket - 1) / grid.bucket * ((grid.bucket + 7) / 8);
  }
};

// Codes of elements whose heads are written, and what error feedback keeps: eight a thread.
template <class Grid>
struct BucketCodes {
  static constexpr unsigned kThreads = 128;
  using Shared = NothingShared;

  Source source;
  Grid grid;
  RandomStream draws;
  std::uint64_t first;  // element of the tensor
  std::byte* wire;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const auto at = EightCodes::of(grid, block.block() * kThreads + block.thread(), source.count);
    if (at.count == 0) return;
    const auto head = grid.load(wire + at.bucket * bucket_bytes(grid));
    const bool coded = grid.coded(head);
    const auto coding = grid.coding_of(head);
    const auto meaning = grid.meaning_of(head);
    std::uint64_t packed = 0;
    for (int j = 0; j < at.count; ++j) {
      const std::int64_t i = at.begin + j;
      const float p = source.at(i);
      unsigned code = 0;
      if (coded) {
        const unsigned draw =
            grid.draws ? dither_of(draws, first + static_cast<std::uint64_t>(i)) : 0;
        code = grid.code(coding, p, draw);
      }
      packed |= static_cast<std::uint64_t>(code) << (j * grid.bits);
      if (source.next == nullptr) continue;
      const float left = p - grid.value(meaning, code) * source.own_scale;
      source.next[i] = left;
      if (!is_finite(left)) {
        block.least(verdict, word_of(static_cast<std::uint64_t>(i), kBucketNotFinite));
      }
    }
    store_bytes(wire + at.place, packed, (at.count * grid.bits + 7) / 8);
  }
};

// Values of eight codes a thread; heads, codes and free bits are looked at on the way.
template <class Grid>
struct BucketValues {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;
  using Four = Pack<float, 4>;

  Grid grid;
  const std::byte* wire;
  bool add;
  bool packed;  // dst begins at 16 bytes
  float* dst;
  std::int64_t count;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const auto at = EightCodes::of(grid, block.block() * kThreads + block.thread(), count);
    if (at.count == 0) return;
    const auto head = grid.load(wire + at.bucket * bucket_bytes(grid));
    if (!grid.sound(head)) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(at.bucket), kBucketHead));
    }
    const int used = at.count * grid.bits;
    const std::uint64_t folded = load_bytes(wire + at.place, (used + 7) / 8);
    if (used % 8 != 0 && folded >> used != 0) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(at.begin), kBucketFreeBits));
    }
    put(block, at, grid.meaning_of(head), folded);
  }

  template <class Block, class Meaning>
  GW_DEVICE void put(Block& block, const EightCodes& at, const Meaning& meaning,
                     std::uint64_t folded) const {
    float* const to = dst + at.begin;
    const bool whole = at.count == 8 && packed && at.begin % 4 == 0;
    float value[8] = {};
    if (add && whole) {
      for (int q = 0; q < 2; ++q) {
        const Four old = reinterpret_cast<const Four*>(to)[q];
        for (int j = 0; j < 4; ++j) value[4 * q + j] = old.at[j];
      }
    }
    const unsigned mask = (1u << grid.bits) - 1;
    for (int j = 0; j < 8; ++j) {  // of constant length: the values stay in registers
      if (j >= at.count) continue;
      const unsigned code = static_cast<unsigned>(folded >> (j * grid.bits)) & mask;
      if (!grid.sound(meaning, code)) {
        block.least(verdict, word_of(static_cast<std::uint64_t>(at.begin + j), kBucketCode));
      }
      const float own = grid.value(meaning, code);
      if (!whole) {
        to[j] = add ? to[j] + own : own;
      } else {
        value[j] = add ? value[j] + own : own;
      }
    }
    if (!whole) return;
    for (int q = 0; q < 2; ++q) {
      reinterpret_cast<Four*>(to)[q] = {value[4 * q], value[4 * q + 1], value[4 * q + 2],
                                        value[4 * q + 3]};
    }
  }
};

}  // namespace gradwire::cuda
