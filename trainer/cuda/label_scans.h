// What losses over labels share: the first largest output of a row, and sums over labels.
#pragma once

#include <cstdint>

#include "device/cuda/launch.h"
#include "trainer/cuda/ordered_sums.h"

namespace gradwire::cuda {

// The first largest of a warp's values, where NaN is never larger.
struct FirstLargest {
  float value;
  std::uint32_t index;

  GW_DEVICE void see(float other, std::uint32_t at) {
    if (other > value || (other == value && at < index)) {
      value = other;
      index = at;
    }
  }
  template <class Block>
  GW_DEVICE void share(Block& block) {
    for (unsigned far = 16; far > 0; far /= 2) {
      const float other = block.shuffle(value, block.lane() ^ far);
      see(other, block.shuffle(index, block.lane() ^ far));
    }
  }
};

// One block: found = the mean loss and the number of hits.
struct LabelTotals {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    double sums[kThreads];
  };

  const double* by_label;
  std::int64_t count;
  double* found;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    double loss = 0;
    double hits = 0;
    for (std::int64_t i = block.thread(); i < count; i += kThreads) {
      loss += by_label[i];
      hits += by_label[count + i];
    }
    loss = sum_of_block<kThreads>(block, shared.sums, loss);
    hits = sum_of_block<kThreads>(block, shared.sums, hits);
    if (block.thread() > 0) return;
    found[0] = loss / static_cast<double>(count);
    found[1] = hits;
  }
};

}  // namespace gradwire::cuda
