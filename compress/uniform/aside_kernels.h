// minmax and absmax with spikes or a transform: what they do to a copy of the elements, around the
// kernels of bucket_threads.h.
#pragma once

#include "compress/cuda/bucket_threads.h"
#include "compress/cuda/eight.h"
#include "compress/cuda/lanes.h"

namespace gradwire::cuda {

inline constexpr std::int64_t kSpikeBytes = 12;  // two places of 16 bits, two elements

// A bucket's smallest and largest element and where they are; places are 0 of none.
struct Spikes {
  std::uint32_t low_at = 0;
  std::uint32_t high_at = 0;
  float low = 0;
  float high = 0;

  constexpr void store(std::byte* to) const {
    store_bytes(to, low_at, 2);
    store_bytes(to + 2, high_at, 2);
    store_float(to + 4, 0, low);
    store_float(to + 4, 1, high);
  }
  static constexpr Spikes load(const std::byte* from) {
    return {static_cast<std::uint32_t>(load_bytes(from, 2)),
            static_cast<std::uint32_t>(load_bytes(from + 2, 2)), load_float(from + 4, 0),
            load_float(from + 4, 1)};
  }
  constexpr bool sound(std::int64_t count) const {
    return (low_at == high_at) == (count == 1) && low_at < count && high_at < count &&
           is_finite(low) && is_finite(high);
  }
};

// copy = the source: eight elements a thread.
struct AsideCopy {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  Source source;
  bool packed;
  float* copy;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kEight * (block.block() * kThreads + block.thread());
    const int count = eight_or(begin, source.count);
    if (count == 0) return;
    float p[kEight];
    Eight::read(source, begin, count, packed, p);
    Eight::write(copy + begin, count, packed, p);
  }
};

// Heads of buckets of a copy, out of which spikes are taken: a warp each. Buckets is what
// bucket_grid.h calls a Grid, with kSpikes, and head_in(range) for a Range.
template <class Buckets>
struct AsideHeads {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kWarps = kThreads / 32;
  using Shared = NothingShared;
  using Head = typename Buckets::Head;

  float* copy;
  std::int64_t count;
  Buckets grid;
  std::byte* wire;
  std::uint64_t* verdict;  // null: buckets that are not finite have their head

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t b = block.block() * kWarps + block.warp();
    const std::int64_t begin = b * grid.bucket;
    if (begin >= count) return;
    const auto size =
        static_cast<std::uint32_t>(count - begin < grid.bucket ? count - begin : grid.bucket);
    float* const x = copy + begin;
    Spikes spikes;
    Range range = range_of_all(block, x, size);
    if constexpr (Buckets::kSpikes) {
      if (Buckets::finite(range)) {
        spikes = take(block, x, size, range);
        range = range_of_all(block, x, size);
      }
    }
    Head head = grid.head_in(range);
    const bool nan = Buckets::is_nan(head);
    if (nan) spikes = {0, size > 1 ? 1u : 0u, 0, 0};
    if (Buckets::kGuards && grid.guard && grid.coded(head) &&
        zeros_are_closer(block, x, size, head, spikes)) {
      head = {0, 0};
    }
    if (block.lane() != 0) return;
    std::byte* const to = wire + b * bucket_bytes(grid);
    grid.store(head, to);
    if constexpr (Buckets::kSpikes) spikes.store(to + Buckets::kHeadBytes - kSpikeBytes);
    if (nan && verdict != nullptr) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin), kBucketNotFinite));
    }
  }

  template <class Block>
  GW_DEVICE Range range_of_all(Block& block, const float* x, std::uint32_t size) const {
    Range range;
    for (std::uint32_t i = block.lane(); i < size; i += 32) range.see(x[i]);
    range.join(block);
    return range;
  }

  // The first place with a value's key, but for `except`. There is one.
  template <class Block>
  GW_DEVICE std::uint32_t first(Block& block, const float* x, std::uint32_t size, std::int32_t key,
                                std::uint32_t except) const {
    std::uint32_t mine = ~std::uint32_t{0};
    for (std::uint32_t i = block.lane(); i < size; i += 32) {
      if (order_of<float>(std::bit_cast<std::int32_t>(x[i])) == key && i != except) {
        mine = i;
        break;
      }
    }
    for (unsigned step = 16; step > 0; step /= 2) {
      const std::uint32_t other = block.shuffle(mine, block.lane() ^ step);
      mine = other < mine ? other : mine;
    }
    return mine;
  }

  // In their place stands an element that is there anyway.
  template <class Block>
  GW_DEVICE Spikes take(Block& block, float* x, std::uint32_t size, const Range& range) const {
    Spikes spikes;
    spikes.low_at = first(block, x, size, range.low, size);
    spikes.high_at = size > 1 ? first(block, x, size, range.high, spikes.low_at) : spikes.low_at;
    spikes.low = x[spikes.low_at];
    spikes.high = x[spikes.high_at];
    std::uint32_t other = 0;
    while (other < size && (other == spikes.low_at || other == spikes.high_at)) ++other;
    const float filling = other < size ? x[other] : 0;
    block.warp_barrier();  // before it is written
    if (block.lane() == 0) x[spikes.low_at] = x[spikes.high_at] = filling;
    block.warp_barrier();
    return spikes;
  }

  // Sums in sixteen chains. Spikes, whose codes mean nothing, are taken back where a run of
  // kGuardRun elements ends.
  static constexpr std::uint32_t kGuardRun = 512;
  template <class Block>
  GW_DEVICE bool zeros_are_closer(Block& block, const float* x, std::uint32_t size,
                                  const Head& head, const Spikes& spikes) const {
    const auto coding = grid.coding_of(head);
    const auto meaning = grid.meaning_of(head);
    double squares = 0;
    double excess = 0;
    if (block.lane() < kGuardSums) {
      for (std::uint32_t run = 0; run < size; run += kGuardRun) {
        const std::uint32_t end = run + kGuardRun < size ? run + kGuardRun : size;
        for (std::uint32_t i = run + block.lane(); i < end; i += kGuardSums) {
          squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
          excess += grid.excess(meaning, x[i], grid.code(coding, x[i], 0));
        }
        if constexpr (Buckets::kSpikes) {
          for (const std::uint32_t at : {spikes.low_at, spikes.high_at}) {
            if (block.lane() != 0 || at < run || at >= end) continue;
            excess -= grid.excess(meaning, x[at], grid.code(coding, x[at], 0));
          }
        }
      }
    }
    for (unsigned half = kGuardSums / 2; half > 0; half /= 2) {
      squares += from_lane(block, squares, block.lane() + half);
    }
    squares = from_lane(block, squares, 0);
    double sum = 0;
    for (unsigned j = 0; j < kGuardSums; ++j) sum += from_lane(block, excess, j);
    const bool surely = !Buckets::kSpikes && grid.surely(meaning, size, squares);
    return !surely && sum > 0;
  }
};

// Spikes' codes become 0: a bucket a thread.
template <class Buckets>
struct SpikeCodes {
  static constexpr unsigned kThreads = 128;
  using Shared = NothingShared;

  std::int64_t count;
  Buckets grid;
  std::byte* wire;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t b = block.block() * kThreads + block.thread();
    if (b * grid.bucket >= count) return;
    std::byte* const head = wire + b * bucket_bytes(grid);
    const Spikes spikes = Spikes::load(head + Buckets::kHeadBytes - kSpikeBytes);
    std::byte* const codes = head + Buckets::kHeadBytes;
    for (const std::uint32_t at : {spikes.low_at, spikes.high_at}) {
      const std::uint32_t first = at * static_cast<std::uint32_t>(grid.bits);
      const unsigned mask = ((1u << grid.bits) - 1) << (first % 8);
      codes[first / 8] &= static_cast<std::byte>(~mask & 0xffu);
      if (mask > 0xff) codes[first / 8 + 1] &= static_cast<std::byte>(~(mask >> 8) & 0xffu);
    }
  }
};

// Spikes of what was decoded: a bucket a thread. Heads are sound but for them.
template <class Buckets>
struct SpikeValues {
  static constexpr unsigned kThreads = 128;
  using Shared = NothingShared;

  const std::byte* wire;
  std::int64_t count;
  Buckets grid;
  float* dst;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t b = block.block() * kThreads + block.thread();
    const std::int64_t begin = b * grid.bucket;
    if (begin >= count) return;
    const std::byte* const head = wire + b * bucket_bytes(grid);
    if (Buckets::is_nan(grid.load(head))) return;
    const Spikes spikes = Spikes::load(head + Buckets::kHeadBytes - kSpikeBytes);
    if (!spikes.sound(count - begin < grid.bucket ? count - begin : grid.bucket)) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(b), kBucketHead));
      return;
    }
    dst[begin + spikes.low_at] = spikes.low;
    dst[begin + spikes.high_at] = spikes.high;
  }
};

// dst += aside: eight elements a thread.
struct AsideAdd {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const float* aside;
  std::int64_t count;
  bool packed;
  float* dst;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kEight * (block.block() * kThreads + block.thread());
    const int some = eight_or(begin, count);
    if (some == 0) return;
    float value[kEight];
    Eight::read({.grad = aside, .count = count}, begin, some, packed, value);
    Eight::put(dst + begin, some, packed, true, value);
  }
};

}  // namespace gradwire::cuda
