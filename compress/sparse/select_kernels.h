// Choosing elements on a device: all above a magnitude, and the first so many of those equal to it,
// as pairs in order of index.
//
// The magnitude of the k-th largest is found digit by digit (radix select): a tally counts the
// elements by the next digit of their keys, among those that agree in the digits before; the next
// kernel picks the digit and goes on. Three tallies of 11, 11 and 9 bits. Then elements are counted
// tile by tile, the tiles' places in the payload are summed up, and pairs are written. Over all
// elements (WholeItems) that is 5 passes over memory, right for all data; over candidates that a
// pass has put aside (CandidateItems) it is next to nothing.
#pragma once

#include "compress/cuda/block_scan.h"
#include "compress/cuda/slices.h"
#include "compress/topk/topk_arithmetic.h"

namespace gradwire::cuda {

inline constexpr std::int64_t kSelectTile = 4096;  // elements; a tile's counts fit in 16 bits
inline constexpr int kSelectLevels = 3;
inline constexpr unsigned kSelectDigits = 2048;
inline constexpr std::uint32_t kSelectInfinity = 0x7f800000u;  // as a key

// What a selection finds.
enum SelectFinding : unsigned {
  kSelectMisled = 1,    // candidates are too few or too many; at place 0
  kSelectNotFinite = 2  // a chosen element; at its index
};

constexpr int select_shift(int level) { return level == 0 ? 20 : level == 1 ? 9 : 0; }
constexpr unsigned select_digit(std::uint32_t key, int level) {
  return key >> select_shift(level) & (level == 2 ? 511u : 2047u);
}

// Keys above `least`, and the first `ties` of those equal to it. On the way there: of those that
// agree with `least` in its upper digits, the `ties` largest.
struct SelectCut {
  std::uint32_t least;
  std::uint32_t ties;
};

// On the device; zeroed before each selection.
struct SelectState {
  std::uint32_t low;             // candidates' keys are at least that; 0: there is no such bound
  std::uint32_t found;           // candidates
  std::uint32_t pairs;           // to be written
  SelectCut cut[kSelectLevels];  // after each level
  std::uint32_t tally[kSelectLevels][kSelectDigits];
};

// A run of items in order of index.
struct SelectRun {
  std::int64_t first;
  std::int64_t count;
};

// All elements, in tiles.
struct WholeItems {
  Source source;

  constexpr bool sound() const { return true; }
  constexpr std::int64_t count() const { return source.count; }
  constexpr float value(std::int64_t item) const { return source.at(item); }
  constexpr std::int64_t index(std::int64_t item) const { return item; }
  constexpr SelectRun tile(std::int64_t t) const {
    const std::int64_t first = t * kSelectTile;
    const std::int64_t rest = source.count - first;
    return {first, rest < kSelectTile ? rest : kSelectTile};
  }
  constexpr bool keeps() const { return source.next != nullptr; }
  GW_DEVICE void keep(std::int64_t item, float value, bool chosen) const {
    source.next[item] = chosen ? topk_rest(value, source.own_scale) : value;
  }
};

// Those that were put aside, tile by tile; what error feedback keeps is there as if all were
// chosen.
struct CandidateItems {
  const SelectState* state;
  std::uint32_t least;  // so many candidates are wanted
  std::uint32_t most;   // and there is room for these
  const std::uint32_t* indices;
  const float* values;
  const std::uint32_t* tile_first;
  const std::uint32_t* tile_count;
  float* next;

  GW_DEVICE bool sound() const { return state->found >= least && state->found <= most; }
  GW_DEVICE std::int64_t count() const { return state->found; }
  GW_DEVICE float value(std::int64_t item) const { return values[item]; }
  GW_DEVICE std::int64_t index(std::int64_t item) const { return indices[item]; }
  GW_DEVICE SelectRun tile(std::int64_t t) const { return {tile_first[t], tile_count[t]}; }
  constexpr bool keeps() const { return next != nullptr; }
  GW_DEVICE void keep(std::int64_t item, float value, bool chosen) const {
    if (!chosen) next[indices[item]] = value;
  }
};

template <unsigned Threads>
struct PickShared {
  ScanShared<Threads> scan;
  SelectCut cut;
};

// The cut one level on: the digit that holds the last of the `ties` largest. All threads call it
// and get the cut.
template <class Block, unsigned Threads>
GW_DEVICE SelectCut pick_digit(Block& block, PickShared<Threads>& shared,
                               const std::uint32_t* tally, SelectCut before, int level) {
  constexpr unsigned kEach = kSelectDigits / Threads;
  const unsigned end = kSelectDigits - kEach * block.thread();  // the first thread has the largest
  std::uint32_t mine = 0;
  for (unsigned j = 0; j < kEach; ++j) mine += tally[end - 1 - j];
  std::uint32_t above = scan(block, shared.scan, mine).before;
  if (before.ties > above && before.ties <= above + mine) {
    unsigned digit = end - 1;
    while (above + tally[digit] < before.ties) above += tally[digit--];
    shared.cut = {before.least | digit << select_shift(level), before.ties - above};
  }
  block.barrier();
  const SelectCut cut = shared.cut;
  block.barrier();
  return cut;
}

// The cut that the tally of `level` leads to, kept for later kernels. All blocks find the same.
template <class Block, unsigned Threads>
GW_DEVICE SelectCut narrow(Block& block, PickShared<Threads>& shared, SelectState* state,
                           std::uint32_t k, int level) {
  const SelectCut before = level == 0 ? SelectCut{0, k} : state->cut[level - 1];
  const SelectCut cut = pick_digit(block, shared, state->tally[level], before, level);
  if (block.block() == 0 && block.thread() == 0) state->cut[level] = cut;
  return cut;
}

// Whether a key agrees with the digits above `level`.
constexpr bool agrees(std::uint32_t key, const SelectCut& cut, int level) {
  return level == 0 || (key ^ cut.least) >> select_shift(level - 1) == 0;
}

// Counts items by their digit of `level`.
template <class Items>
struct SelectTally {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    std::uint32_t digits[kSelectDigits];
    PickShared<kThreads> pick;
  };

  Items items;
  std::uint32_t k;
  int level;
  SelectState* state;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    if (!items.sound()) return;
    SelectCut cut{0, k};
    if (level > 0) cut = narrow(block, shared.pick, state, k, level - 1);
    const unsigned thread = block.thread();
    for (unsigned d = thread; d < kSelectDigits; d += kThreads) shared.digits[d] = 0;
    block.barrier();
    const std::int64_t count = items.count();
    for (std::int64_t i = block.block() * kThreads + thread; i < count;
         i += block.blocks() * kThreads) {
      const std::uint32_t key = topk_key(items.value(i));
      if (agrees(key, cut, level)) block.add(&shared.digits[select_digit(key, level)], 1);
    }
    block.barrier();
    for (unsigned d = thread; d < kSelectDigits; d += kThreads) {
      if (shared.digits[d] > 0) block.add(&state->tally[level][d], shared.digits[d]);
    }
  }
};

// How many items of each tile are above the cut and how many equal to it.
template <class Items>
struct SelectCounts {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    PickShared<kThreads> pick;
  };

  Items items;
  std::uint32_t k;  // 0: the cut is there already
  std::int64_t tiles;
  SelectState* state;
  std::uint32_t* above;
  std::uint32_t* ties;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    if (!items.sound()) return;
    constexpr int kLast = kSelectLevels - 1;
    const SelectCut cut = k == 0 ? state->cut[kLast] : narrow(block, shared.pick, state, k, kLast);
    for (std::int64_t t = block.block(); t < tiles; t += block.blocks()) {
      const SelectRun run = items.tile(t);
      std::uint32_t mine = 0;  // ties above bit 16
      for (std::int64_t i = block.thread(); i < run.count; i += kThreads) {
        const std::uint32_t key = topk_key(items.value(run.first + i));
        mine += (key > cut.least ? 1u : 0u) + (key == cut.least ? 1u << 16 : 0u);
      }
      const std::uint32_t all = scan(block, shared.pick.scan, mine).total;
      if (block.thread() == 0) {
        above[t] = all & 0xffffu;
        ties[t] = all >> 16;
      }
    }
  }
};

// Each count becomes the sum of those in front; returns the sum of all. All threads of one block.
template <class Block, unsigned Threads>
GW_DEVICE std::uint32_t sums_in_front(Block& block, ScanShared<Threads>& shared,
                                      std::uint32_t* counts, std::int64_t size) {
  const std::int64_t each = (size + Threads - 1) / Threads;
  const std::int64_t first = each * block.thread();
  const std::int64_t end = first + each < size ? first + each : size;
  std::uint32_t mine = 0;
  for (std::int64_t t = first; t < end; ++t) mine += counts[t];
  const Scanned sums = scan(block, shared, mine);
  std::uint32_t before = sums.before;
  for (std::int64_t t = first; t < end; ++t) {
    const std::uint32_t own = counts[t];
    counts[t] = before;
    before += own;
  }
  return sums.total;
}

// Counts of tiles become places in the payload. One block.
template <class Items>
struct SelectOffsets {
  static constexpr unsigned kThreads = 1024;
  using Shared = ScanShared<kThreads>;

  Items items;
  std::int64_t tiles;
  SelectState* state;
  std::uint32_t* above;
  std::uint32_t* ties;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    if (!items.sound()) {
      if (block.thread() == 0) block.least(verdict, word_of(0, kSelectMisled));
      return;
    }
    const std::uint32_t most = sums_in_front(block, shared, above, tiles);
    const std::uint32_t equal = sums_in_front(block, shared, ties, tiles);
    const std::uint32_t wanted = state->cut[kSelectLevels - 1].ties;
    if (block.thread() == 0) state->pairs = most + (equal < wanted ? equal : wanted);
  }
};

// Where pairs go. Any of these may begin at any byte.
struct PairTarget {
  std::byte* indices;  // u32 each; null: a bitmap
  std::byte* bitmap;   // a bit for each element of the tensor, every byte written
  std::byte* values;   // null: right behind the indices
  bool in_words;       // all begin at 4 bytes
};

// Writes the chosen items' pairs, and what error feedback keeps.
template <class Items>
struct SelectPairs {
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kWords = kSelectTile / 32;
  struct Shared {
    ScanShared<kThreads> scan;
    std::uint32_t bits[kWords];
  };

  Items items;
  std::int64_t tiles;
  std::int64_t elems;
  const SelectState* state;
  const std::uint32_t* above;  // in front of each tile
  const std::uint32_t* ties;
  PairTarget to;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    if (!items.sound()) return;
    for (std::int64_t t = block.block(); t < tiles; t += block.blocks()) {
      if (to.bitmap != nullptr) {
        if (block.thread() < kWords) shared.bits[block.thread()] = 0;
        block.barrier();
      }
      one(block, shared, t);
      if (to.bitmap == nullptr) continue;
      block.barrier();
      put_bits(block.thread(), shared.bits, t);
      block.barrier();
    }
  }

  template <class Block>
  GW_DEVICE void one(Block& block, Shared& shared, std::int64_t t) const {
    const SelectCut cut = state->cut[kSelectLevels - 1];
    const SelectRun run = items.tile(t);
    std::uint32_t above_before = above[t];
    std::uint32_t ties_before = ties[t];
    for (std::int64_t first = 0; first < run.count; first += kThreads) {
      const bool there = first + block.thread() < run.count;
      const std::int64_t item = run.first + first + block.thread();
      const float value = there ? items.value(item) : 0;
      const std::uint32_t key = topk_key(value);
      const bool more = there && key > cut.least;
      const bool tie = there && key == cut.least;
      const Scanned sums = scan(block, shared.scan, (more ? 1u : 0u) + (tie ? 1u << 16 : 0u));
      const std::uint32_t ties_here = ties_before + (sums.before >> 16);
      const bool chosen = more || (tie && ties_here < cut.ties);
      if (chosen) {
        const std::uint32_t place =
            above_before + (sums.before & 0xffffu) + (ties_here < cut.ties ? ties_here : cut.ties);
        put(block, shared, place, items.index(item), value);
      }
      if (there && items.keeps()) items.keep(item, value, chosen);
      above_before += sums.total & 0xffffu;
      ties_before += sums.total >> 16;
    }
  }

  template <class Block>
  GW_DEVICE void put(Block& block, Shared& shared, std::uint32_t place, std::int64_t index,
                     float value) const {
    std::byte* const values =
        to.values != nullptr ? to.values : to.indices + 4 * std::int64_t{state->pairs};
    if (to.in_words) {
      reinterpret_cast<float*>(values)[place] = value;
      if (to.indices != nullptr) {
        reinterpret_cast<std::uint32_t*>(to.indices)[place] = static_cast<std::uint32_t>(index);
      }
    } else {
      store_float(values, place, value);
      if (to.indices != nullptr) store_word(to.indices, place, static_cast<std::uint32_t>(index));
    }
    if (to.bitmap != nullptr) {  // no other adds this bit
      block.add(&shared.bits[index % kSelectTile / 32], 1u << (index % 32));
    }
    if (topk_key(value) >= kSelectInfinity) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(index), kSelectNotFinite));
    }
  }

  GW_DEVICE void put_bits(unsigned thread, const std::uint32_t* bits, std::int64_t t) const {
    const std::int64_t begin = t * kSelectTile / 8;
    const std::int64_t rest = (elems + 7) / 8 - begin;
    const std::int64_t bytes = rest < kSelectTile / 8 ? rest : kSelectTile / 8;
    for (std::int64_t i = thread; i < bytes; i += kThreads) {
      to.bitmap[begin + i] = static_cast<std::byte>(bits[i / 4] >> (i % 4 * 8) & 0xffu);
    }
  }
};

}  // namespace gradwire::cuda
