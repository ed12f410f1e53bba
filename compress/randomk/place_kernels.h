// randomk's places on a device: those that places.h draws one after the other, side by side.
//
// Draw i chooses place t_i of 0 ... j_i, j_i = elems - k + i, or j_i where t_i was chosen before.
// It was if an earlier draw drew it, too, which a table of each place's first draw tells; or if it
// is some j_m, m < i, that draw m chose instead of its own. Whether draw m did is the same question
// about an earlier draw: each thread follows such a chain to its end, a handful of draws.
#pragma once

#include "base/philox.h"
#include "compress/cuda/slices.h"
#include "compress/randomk/places.h"

namespace gradwire::cuda {

struct PlaceDraws {
  RandomStream stream;
  std::uint64_t elems;
  std::uint64_t k;

  constexpr std::uint64_t last(std::uint64_t i) const { return elems - k + i; }
  constexpr std::uint64_t place(std::uint64_t i) const {
    const auto words = stream.block(i / 2);  // two draws of two words
    const bool odd = i % 2 == 1;
    return place_below(last(i) + 1, odd ? words[2] : words[0], odd ? words[3] : words[1]);
  }
};

// first[t] = ~(the first draw of place t), 0 where there is none. Zeroed before.
struct PlaceFirsts {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  PlaceDraws draws;
  std::uint32_t* first;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const auto i = static_cast<std::uint64_t>(block.block() * kThreads + block.thread());
    if (i < draws.k) block.most(&first[draws.place(i)], ~static_cast<std::uint32_t>(i));
  }
};

// Sets the bit of what each draw chooses, in words of 32 that were zeroed before.
struct PlaceBits {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  PlaceDraws draws;
  const std::uint32_t* first;
  std::uint32_t* bits;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const auto i = static_cast<std::uint64_t>(block.block() * kThreads + block.thread());
    if (i >= draws.k) return;
    const std::uint64_t drawn = draws.place(i);
    const std::uint64_t chosen = was_chosen(i, drawn) ? draws.last(i) : drawn;
    block.add(&bits[chosen / 32], 1u << (chosen % 32));  // no other draw chooses it
  }

  // Whether draw i, which drew place t, chooses last(i) instead.
  GW_DEVICE bool was_chosen(std::uint64_t i, std::uint64_t t) const {
    for (;;) {
      if (first[t] != ~static_cast<std::uint32_t>(i)) return true;
      if (t < draws.last(0)) return false;
      const std::uint64_t m = t - draws.last(0);
      if (m == i) return true;  // the same place either way
      i = m;
      t = draws.place(m);
    }
  }
};

}  // namespace gradwire::cuda
