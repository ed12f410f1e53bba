// Elements at places that all ranks know, on a device: a bitmap, and how many places lie in front
// of each tile.
#pragma once

#include "compress/cuda/block_scan.h"
#include "compress/cuda/sixteen.h"
#include "compress/sparse/select_kernels.h"

namespace gradwire::cuda {

// What picking finds: an element that is not finite, chosen or not.
inline constexpr unsigned kChoiceNotFinite = 1;

// Sixteen neighbouring elements of a thread, and where the chosen ones among them go.
struct ChosenSixteen {
  static constexpr unsigned kThreads = 256;
  static_assert(kThreads * kSixteen == kSelectTile);

  std::int64_t begin;
  int count;
  std::uint32_t bits;
  std::uint32_t rank;  // of the first chosen

  // All threads of the block call it. Words of the bitmap reach to the end of the last tile.
  template <class Block>
  GW_DEVICE static ChosenSixteen of(Block& block, ScanShared<kThreads>& shared, std::int64_t tile,
                                    std::int64_t elems, const std::uint32_t* bitmap,
                                    const std::uint32_t* starts) {
    const std::int64_t begin = tile * kSelectTile + kSixteen * block.thread();
    const std::uint32_t bits = bitmap[begin / 32] >> (begin % 32) & 0xffffu;
    const Scanned sums = scan(block, shared, static_cast<std::uint32_t>(std::popcount(bits)));
    return {begin, sixteen_or(begin, elems), bits, starts[tile] + sums.before};
  }
};

// picked = factor * the chosen elements, in their order, and what error feedback keeps. Memory: 4
// bytes an element in; with feedback 8 in and 4 out.
struct PickChosen {
  static constexpr unsigned kThreads = ChosenSixteen::kThreads;
  using Shared = ScanShared<kThreads>;

  Source source;
  std::int64_t tiles;
  const std::uint32_t* bitmap;
  const std::uint32_t* starts;
  float factor;
  float* picked;
  bool packed;  // all floats begin at 16 bytes
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    for (std::int64_t t = block.block(); t < tiles; t += block.blocks()) {
      const ChosenSixteen own = ChosenSixteen::of(block, shared, t, source.count, bitmap, starts);
      float p[kSixteen] = {};
      Sixteen::read(source, own.begin, own.count, packed, p);
      std::uint32_t to = own.rank;
      for (int j = 0; j < kSixteen; ++j) {
        if (j >= own.count) continue;
        if (!is_finite(p[j])) {
          block.least(verdict,
                      word_of(static_cast<std::uint64_t>(own.begin + j), kChoiceNotFinite));
        }
        if ((own.bits >> j & 1u) == 0) continue;
        const float sent = p[j] * factor;
        picked[to++] = sent;
        p[j] = p[j] - sent * source.own_scale;
      }
      if (source.next != nullptr) {
        Sixteen::write(source.next + own.begin, own.count, packed, p);
      }
    }
  }
};

// dst = the values at the chosen places, 0 elsewhere.
struct SpreadChosen {
  static constexpr unsigned kThreads = ChosenSixteen::kThreads;
  using Shared = ScanShared<kThreads>;

  const float* values;
  std::int64_t elems;
  std::int64_t tiles;
  const std::uint32_t* bitmap;
  const std::uint32_t* starts;
  bool packed;
  float* dst;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    for (std::int64_t t = block.block(); t < tiles; t += block.blocks()) {
      const ChosenSixteen own = ChosenSixteen::of(block, shared, t, elems, bitmap, starts);
      float x[kSixteen] = {};
      std::uint32_t from = own.rank;
      for (int j = 0; j < kSixteen; ++j) {
        if ((own.bits >> j & 1u) != 0) x[j] = values[from++];
      }
      if (own.count > 0) Sixteen::write(dst + own.begin, own.count, packed, x);
    }
  }
};

}  // namespace gradwire::cuda
