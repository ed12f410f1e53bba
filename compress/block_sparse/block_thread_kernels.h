// block_sparse's kernels: which blocks travel, their elements, and sums of them.
#pragma once

#include "compress/cuda/block_scan.h"
#include "compress/cuda/eight.h"
#include "compress/sparse/pair_kernels.h"

namespace gradwire::cuda {

// Sets the bits of blocks that have a bit set, in words that were zeroed before: a warp for each
// block. Memory: 4 bytes an element in, of blocks that hold something less.
struct BlockBits {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kWarps = kThreads / 32;
  using Shared = NothingShared;
  using Four = Pack<std::uint32_t, 4>;

  const std::uint32_t* x;
  std::int64_t elems;
  std::int64_t size;  // of a block
  std::int64_t blocks;
  bool packed;  // every block begins at 16 bytes
  std::uint32_t* bits;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    for (std::int64_t b = block.block() * kWarps + block.warp(); b < blocks;
         b += block.blocks() * kWarps) {
      const std::int64_t begin = b * size;
      const std::int64_t count = elems - begin < size ? elems - begin : size;
      if (holds(block, begin, count) && block.lane() == 0) {
        block.add(&bits[b / 32], 1u << (b % 32));
      }
    }
  }

  template <class Block>
  GW_DEVICE bool holds(Block& block, std::int64_t begin, std::int64_t count) const {
    const std::int64_t fours = packed ? count / 4 : 0;
    for (std::int64_t first = 0; first < fours; first += 32) {
      const std::int64_t q = first + block.lane();
      std::uint32_t any = 0;
      if (q < fours) {
        const Four some = reinterpret_cast<const Four*>(x + begin)[q];
        any = some.at[0] | some.at[1] | some.at[2] | some.at[3];
      }
      if (block.any(any != 0)) return true;
    }
    for (std::int64_t first = 4 * fours; first < count; first += 32) {
      const std::int64_t i = first + block.lane();
      if (block.any(i < count && x[begin + (i < count ? i : 0)] != 0)) return true;
    }
    return false;
  }
};

// Counts of tiles of bits become starts, and the end. One block.
struct BlockStarts {
  static constexpr unsigned kThreads = 1024;
  using Shared = ScanShared<kThreads>;

  std::int64_t tiles;
  std::uint32_t* starts;  // counts, and room for one more

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::uint32_t all = sums_in_front(block, shared, starts, tiles);
    if (block.thread() == 0) starts[tiles] = all;
  }
};

// The elements of blocks, one block after another: eight a thread.
struct BlockValues {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const float* x;
  std::int64_t size;
  const std::uint32_t* numbers;
  std::int64_t count;  // of elements
  std::byte* to;
  bool in_words;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kEight * (block.block() * kThreads + block.thread());
    if (begin >= count) return;
    std::int64_t j = begin / size;
    std::int64_t within = begin % size;
    const float* from = x + numbers[j] * size;
    for (std::int64_t i = begin; i < begin + kEight && i < count; ++i, ++within) {
      if (within == size) {
        within = 0;
        from = x + numbers[++j] * size;
      }
      if (in_words) {
        reinterpret_cast<float*>(to)[i] = from[within];
      } else {
        store_float(to, i, from[within]);
      }
    }
  }
};

inline constexpr std::uint32_t kNoBlock = ~std::uint32_t{0};

// places[number] = j: where a block lies among those of a payload.
struct BlockPlacesOf {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const std::uint32_t* numbers;
  std::int64_t count;
  std::uint32_t* places;  // kNoBlock before

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t j = block.block() * kThreads + block.thread();
    if (j < count) places[numbers[j]] = static_cast<std::uint32_t>(j);
  }
};

// dst = factor * the sum of some payloads' blocks, in their order: eight elements a thread. What
// one payload alone brings is copied bit for bit before it is multiplied.
struct BlockSums {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const std::byte* const* values;  // of each payload
  const std::uint32_t* places;     // of each payload's blocks
  int number;
  std::int64_t elems;
  std::int64_t size;
  std::int64_t blocks;
  bool in_words;
  bool packed;
  float factor;
  float* dst;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kEight * (block.block() * kThreads + block.thread());
    const int count = eight_or(begin, elems);
    if (count == 0) return;
    float sum[kEight] = {};
    std::int64_t b = begin / size;
    std::int64_t within = begin % size;
    for (int j = 0; j < kEight; ++j, ++within) {
      if (j >= count) continue;
      if (within == size) {
        within = 0;
        ++b;
      }
      sum[j] = one(b, within);
    }
    Eight::write(dst + begin, count, packed, sum);
  }

  GW_DEVICE float one(std::int64_t b, std::int64_t within) const {
    float sum = 0;
    bool touched = false;
    for (int r = 0; r < number; ++r) {
      const std::uint32_t place = places[r * blocks + b];
      if (place == kNoBlock) continue;
      const std::int64_t i = place * size + within;
      const float value =
          in_words ? reinterpret_cast<const float*>(values[r])[i] : load_float(values[r], i);
      sum = touched ? sum + value : value;
      touched = true;
    }
    return touched && factor != 1 ? sum * factor : sum;
  }
};

}  // namespace gradwire::cuda
