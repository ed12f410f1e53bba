// Reading pairs on a device: indices are checked, and cut into the tiles of a tensor; sums are made
// tile by tile, so that a mean is written once, whatever was sent for it.
#pragma once

#include "compress/cuda/block_scan.h"
#include "compress/cuda/slices.h"
#include "compress/sparse/select_kernels.h"

namespace gradwire::cuda {

// What readers of pairs find, at the place of a pair (of bits: of a tile).
enum PairFinding : unsigned {
  kPairIndex = 1,    // does not ascend, or is beyond the tensor
  kBitmapCount = 2,  // not as many bits as pairs
  kBitmapFree = 3    // a bit behind the last element
};

struct PairWords {
  // u32 of a payload. `in_words`: it begins at 4 bytes.
  GW_DEVICE static std::uint32_t at(const std::byte* bytes, std::int64_t i, bool in_words) {
    return in_words ? reinterpret_cast<const std::uint32_t*>(bytes)[i] : load_word(bytes, i);
  }
};

// Checks indices, and finds starts[t], the first pair of tile t or behind it, for each tile and the
// end. One pair a thread, and one thread more.
struct PairStarts {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const std::byte* indices;
  std::int64_t pairs;
  std::int64_t elems;
  std::int64_t tiles;
  bool in_words;
  std::uint32_t* starts;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t i = block.block() * kThreads + block.thread();
    if (i > pairs) return;
    const std::int64_t before = i == 0 ? -1 : std::int64_t{PairWords::at(indices, i - 1, in_words)};
    const std::int64_t here =
        i == pairs ? elems : std::int64_t{PairWords::at(indices, i, in_words)};
    if (before >= here || (i < pairs && here >= elems)) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(i == pairs ? i - 1 : i), kPairIndex));
      return;
    }
    const std::int64_t last = i == pairs ? tiles : here / kSelectTile;
    for (std::int64_t t = before < 0 ? 0 : before / kSelectTile + 1; t <= last; ++t) {
      starts[t] = static_cast<std::uint32_t>(i);
    }
  }
};

// Bits of each tile.
struct BitmapCounts {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kBytes = kSelectTile / 8;
  using Shared = ScanShared<kThreads>;

  const std::byte* bits;
  std::int64_t elems;
  std::int64_t tiles;
  std::uint32_t* counts;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t bytes = (elems + 7) / 8;
    for (std::int64_t t = block.block(); t < tiles; t += block.blocks()) {
      std::uint32_t mine = 0;
      for (std::int64_t j = block.thread(); j < kBytes; j += kThreads) {
        const std::int64_t b = t * kBytes + j;
        if (b < bytes) mine += static_cast<std::uint32_t>(std::popcount(load_bytes(bits + b, 1)));
        const bool last = b == bytes - 1 && elems % 8 != 0;
        if (last && load_bytes(bits + b, 1) >> (elems % 8) != 0) {
          block.least(verdict, word_of(static_cast<std::uint64_t>(t), kBitmapFree));
        }
      }
      const std::uint32_t all = scan(block, shared, mine).total;
      if (block.thread() == 0) counts[t] = all;
    }
  }
};

// Counts become starts, and their sum is compared with the pairs that there are. One block.
struct BitmapStarts {
  static constexpr unsigned kThreads = 1024;
  using Shared = ScanShared<kThreads>;

  std::int64_t tiles;
  std::int64_t pairs;
  std::uint32_t* starts;  // counts, and room for one more
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::uint32_t all = sums_in_front(block, shared, starts, tiles);
    if (block.thread() != 0) return;
    starts[tiles] = all;
    if (all != pairs) block.least(verdict, word_of(0, kBitmapCount));
  }
};

// The indices of a bitmap's bits.
struct BitmapIndices {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kBytes = kSelectTile / 8;
  using Shared = ScanShared<kThreads>;
  static_assert(kBytes == 2 * kThreads);

  const std::byte* bits;
  std::int64_t elems;
  std::int64_t tiles;
  std::int64_t pairs;
  const std::uint32_t* starts;
  std::uint32_t* indices;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t bytes = (elems + 7) / 8;
    for (std::int64_t t = block.block(); t < tiles; t += block.blocks()) {
      const std::int64_t b = t * kBytes + 2 * block.thread();
      const int count = bytes - b >= 2 ? 2 : bytes > b ? 1 : 0;
      const auto mine = static_cast<std::uint32_t>(load_bytes(bits + b, count));
      const Scanned sums = scan(block, shared, static_cast<std::uint32_t>(std::popcount(mine)));
      std::int64_t to = starts[t] + std::int64_t{sums.before};
      for (int j = 0; j < 16; ++j) {
        if ((mine >> j & 1u) == 0) continue;
        if (to < pairs) indices[to] = static_cast<std::uint32_t>(8 * b + j);  // else it is refused
        ++to;
      }
    }
  }
};

// One rank's pairs, checked. No starts: there are none.
struct PairList {
  const std::byte* indices;
  const std::byte* values;
  const std::uint32_t* starts;
};

// dst = factor * the sum of some payloads, in their order.
struct PairSums {
  static constexpr unsigned kThreads = 256;
  static constexpr int kMostPayloads = 32;
  struct alignas(16) Shared {
    float sum[kSelectTile];
  };
  using Four = Pack<float, 4>;

  PairList payloads[kMostPayloads];
  int number;
  bool first;     // nothing was added up before
  bool last;      // the sums are complete: times `factor`
  bool in_words;  // all payloads
  bool packed;    // dst begins at 16 bytes
  float factor;
  float* dst;
  std::int64_t elems;
  std::int64_t tiles;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    for (std::int64_t t = block.block(); t < tiles; t += block.blocks()) {
      const std::int64_t begin = t * kSelectTile;
      const std::int64_t count = elems - begin < kSelectTile ? elems - begin : kSelectTile;
      for (std::int64_t i = block.thread(); i < kSelectTile; i += kThreads) {
        shared.sum[i] = first || i >= count ? 0 : dst[begin + i];
      }
      block.barrier();
      for (int r = 0; r < number; ++r) {
        const PairList& from = payloads[r];
        if (from.starts == nullptr) continue;
        const std::int64_t end = from.starts[t + 1];
        for (std::int64_t i = from.starts[t] + std::int64_t{block.thread()}; i < end;
             i += kThreads) {
          const std::uint32_t value = PairWords::at(from.values, i, in_words);
          shared.sum[PairWords::at(from.indices, i, in_words) % kSelectTile] +=
              std::bit_cast<float>(value);
        }
        block.barrier();
      }
      write(block.thread(), shared.sum, begin, count);
      block.barrier();
    }
  }

  GW_DEVICE void write(unsigned thread, const float* sum, std::int64_t begin,
                       std::int64_t count) const {
    const float by = last ? factor : 1;
    const std::int64_t fours = packed ? count / 4 : 0;
    for (std::int64_t q = thread; q < fours; q += kThreads) {
      Four x = reinterpret_cast<const Four*>(sum)[q];
      for (int j = 0; j < 4; ++j) x.at[j] *= by;
      reinterpret_cast<Four*>(dst + begin)[q] = x;
    }
    for (std::int64_t i = 4 * fours + thread; i < count; i += kThreads) {
      dst[begin + i] = sum[i] * by;
    }
  }
};

}  // namespace gradwire::cuda
