// Reading atomo's payloads on a device: they are checked, and each rank's atoms added up in order,
// so that a mean is written once, however many ranks sent for it.
#pragma once

#include "compress/atomo/atomo_coder.h"
#include "compress/cuda/slices.h"

namespace gradwire::cuda {

enum AtomFinding : unsigned {
  kAtomSound = 0,
  kAtomCount = 1,    // not the number of atoms that the length tells
  kAtomWeight = 2,   // not finite, or below 0
  kAtomElement = 3,  // of a unit vector: beyond what one has
  kAtomValue = 4     // of a dense tensor: not finite
};

// One rank's payload: `values` behind the count.
struct AtomList {
  const std::byte* values = nullptr;
  std::int64_t atoms = 0;
  bool in_words = true;  // they begin at 4 bytes

  GW_DEVICE float at(std::int64_t i) const {
    return in_words ? reinterpret_cast<const float*>(values)[i] : load_float(values, i);
  }
};

// Finds, behind place `base`, what is wrong with the values of a payload of `atoms` atoms of
// `stride` values each; of a dense one of `count` values where stride is 0.
struct AtomsAreSound {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const std::byte* payload;  // begins with the count, unless dense
  AtomList list;
  std::int64_t count;  // of values
  std::int64_t stride;
  std::uint64_t base;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t i = block.block() * kThreads + block.thread();
    if (i == 0 && stride > 0 && load_word(payload, 0) != list.atoms) {
      block.least(verdict, word_of(base, kAtomCount));
    }
    if (i >= count) return;
    const AtomFinding wrong = judged(i, list.at(i));
    if (wrong != kAtomSound)
      block.least(verdict, word_of(base + static_cast<std::uint64_t>(i), wrong));
  }

 private:
  GW_DEVICE AtomFinding judged(std::int64_t i, float x) const {
    if (stride == 0) return is_finite(x) ? kAtomSound : kAtomValue;
    if (i % stride == 0) return is_finite(x) && x >= 0 ? kAtomSound : kAtomWeight;
    const double value = static_cast<double>(x);
    return value <= kMostAtomUnit && value >= -kMostAtomUnit ? kAtomSound : kAtomElement;
  }
};

// to = from, of a dense tensor; an element that is not finite is found.
struct DenseToPayload {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  const float* from;
  std::int64_t count;
  bool in_words;
  std::byte* to;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t i = block.block() * kThreads + block.thread();
    if (i >= count) return;
    if (in_words) {
      reinterpret_cast<float*>(to)[i] = from[i];
    } else {
      store_float(to, i, from[i]);
    }
    if (is_finite(from[i])) return;
    block.least(verdict, word_of(static_cast<std::uint64_t>(i), kAtomValue));
  }
};

// dst = factor * (dst + the sum of some ranks' payloads); dst counts as 0 in the `first` call, and
// factor as 1 but in the `last`. A thread has kRows elements of a column.
struct AtomSums {
  static constexpr unsigned kThreads = 128;
  static constexpr int kRows = 8;
  static constexpr int kMostPayloads = 16;
  using Shared = NothingShared;

  AtomList payloads[kMostPayloads] = {};
  int number = 0;
  bool first = true;
  bool last = true;
  float factor = 1;
  std::int64_t a = 0;
  std::int64_t c = 0;
  float* dst = nullptr;

  std::int64_t blocks() const { return blocks_for(c, kThreads) * blocks_for(a, kRows); }

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t column_groups = blocks_for(c, kThreads);
    const std::int64_t top = block.block() / column_groups * kRows;
    const int rows = static_cast<int>(a - top < kRows ? a - top : kRows);
    const std::int64_t j = block.block() % column_groups * kThreads + block.thread();
    if (j >= c) return;
    float sums[kRows];
    for (int i = 0; i < kRows; ++i) {
      sums[i] = first || i >= rows ? 0.0f : dst[(top + i) * c + j];
    }
    for (int r = 0; r < number; ++r) add(payloads[r], top, rows, j, sums);
    for (int i = 0; i < kRows; ++i) {
      if (i < rows) dst[(top + i) * c + j] = last ? sums[i] * factor : sums[i];
    }
  }

 private:
  GW_DEVICE void add(const AtomList& list, std::int64_t top, int rows, std::int64_t j,
                     float (&sums)[kRows]) const {
    for (std::int64_t k = 0; k < list.atoms; ++k) {
      const std::int64_t begin = k * (a + c + 1);
      const float weight = list.at(begin);
      const float right = list.at(begin + 1 + a + j);
      for (int i = 0; i < kRows; ++i) {
        const float left = list.at(begin + 1 + top + (i < rows ? i : rows - 1));
        const float scaled = weight * left;
        sums[i] += scaled * right;
      }
    }
  }
};

// The same of dense payloads: one value an element.
struct DenseAtomSums {
  static constexpr unsigned kThreads = 256;
  static constexpr int kMostPayloads = AtomSums::kMostPayloads;
  using Shared = NothingShared;

  AtomList payloads[kMostPayloads] = {};
  int number = 0;
  bool first = true;
  bool last = true;
  float factor = 1;
  std::int64_t count = 0;
  float* dst = nullptr;

  std::int64_t blocks() const { return blocks_for(count, kThreads); }

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t i = block.block() * kThreads + block.thread();
    if (i >= count) return;
    float sum = first ? 0.0f : dst[i];
    for (int r = 0; r < number; ++r) sum += payloads[r].at(i);
    dst[i] = last ? sum * factor : sum;
  }
};

}  // namespace gradwire::cuda
