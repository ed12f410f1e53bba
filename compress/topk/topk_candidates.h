// The fast half of top-k on a device: a sample bounds the k-th largest magnitude from below, and
// one pass puts the elements above the bound aside, about 1.3 k of them. The sample decides speed
// alone: when it misled, the selection goes over all elements.
#pragma once

#include "base/philox.h"
#include "compress/cuda/sixteen.h"
#include "compress/sparse/select_kernels.h"

namespace gradwire::cuda {

// Finds the bound: one block, from elements spread over all.
struct TopkSample {
  static constexpr unsigned kThreads = 1024;
  static constexpr std::int64_t kSamples = 8192;
  struct Shared {
    std::uint32_t keys[kSamples];
    std::uint32_t digits[kSelectDigits];
    PickShared<kThreads> pick;
  };

  Source source;       // of at least kSamples
  std::uint32_t rank;  // of the bound among the samples, from the largest, the first
  SelectState* state;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t stride = source.count / kSamples;
    for (std::int64_t s = block.thread(); s < kSamples; s += kThreads) {
      const auto within = static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(s)) %
                                                    static_cast<std::uint64_t>(stride));
      shared.keys[s] = topk_key(source.at(s * stride + within));
    }
    SelectCut cut{0, rank};
    for (int level = 0; level < kSelectLevels; ++level) {
      for (unsigned d = block.thread(); d < kSelectDigits; d += kThreads) shared.digits[d] = 0;
      block.barrier();
      for (std::int64_t s = block.thread(); s < kSamples; s += kThreads) {
        const std::uint32_t key = shared.keys[s];
        if (agrees(key, cut, level)) block.add(&shared.digits[select_digit(key, level)], 1);
      }
      block.barrier();
      cut = pick_digit(block, shared.pick, shared.digits, cut, level);
    }
    if (block.thread() == 0) state->low = cut.least;
  }
};

// Puts candidates aside, and writes what error feedback keeps as if all of them were chosen.
// Memory: 4 bytes an element in; with error feedback 8 in and 4 out.
struct TopkCollect {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    ScanShared<kThreads> scan;
    std::uint32_t first;
  };
  static_assert(kThreads * kSixteen == kSelectTile);

  Source source;
  SelectState* state;
  std::int64_t tiles;
  std::uint32_t room;  // for candidates
  std::uint32_t* indices;
  float* values;
  std::uint32_t* tile_first;
  std::uint32_t* tile_count;
  bool packed;  // all floats begin at 16 bytes

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::uint32_t low = state->low;
    if (low == 0) return;
    for (std::int64_t t = block.block(); t < tiles; t += block.blocks()) {
      const std::int64_t begin = t * kSelectTile + kSixteen * block.thread();
      const int count = sixteen_or(begin, source.count);
      float p[kSixteen] = {};
      Sixteen::read(source, begin, count, packed, p);
      std::uint32_t mine = 0;
      for (int j = 0; j < kSixteen; ++j) mine += j < count && topk_key(p[j]) >= low ? 1u : 0u;
      const Scanned sums = scan(block, shared.scan, mine);
      if (block.thread() == 0) {
        shared.first = sums.total > 0 ? block.add(&state->found, sums.total) : 0;
        tile_first[t] = shared.first;
        tile_count[t] = sums.total;
      }
      block.barrier();
      put_aside(low, begin, count, shared.first + sums.before, p);
      if (source.next != nullptr) Sixteen::write(source.next + begin, count, packed, p);
    }
  }

  GW_DEVICE void put_aside(std::uint32_t low, std::int64_t begin, int count, std::uint32_t to,
                           float* p) const {
    for (int j = 0; j < kSixteen; ++j) {
      if (j >= count || topk_key(p[j]) < low) continue;
      if (to < room) {
        indices[to] = static_cast<std::uint32_t>(begin + j);
        values[to] = p[j];
      }
      ++to;
      p[j] = topk_rest(p[j], source.own_scale);
    }
  }
};

}  // namespace gradwire::cuda
