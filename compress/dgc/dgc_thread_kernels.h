// dgc's kernels: the momenta of a step, and what of them was sent.
#pragma once

#include <cmath>

#include "base/philox.h"
#include "compress/cuda/chain_sums.h"
#include "compress/cuda/eight.h"
#include "compress/dgc/dgc_arithmetic.h"
#include "compress/sparse/pair_kernels.h"

namespace gradwire::cuda {

// What they find, at an element; kChainNotFinite: the gradient's norm.
enum DgcFinding : unsigned { kDgcGradient = 2, kDgcMomentum = 3, kDgcSum = 4, kDgcLeft = 5 };

inline constexpr int kDgcLows = kDgcMostRounds + 1;

// What clipping multiplies into the gradient, for chain_sums.h.
struct ClipMeans {
  struct Head {
    float factor;
    std::uint32_t finite;  // whether the norm is
  };
  struct Sums {
    double squares = 0;
    constexpr void see(float p) { squares += static_cast<double>(p) * static_cast<double>(p); }
    constexpr void join(const Sums& other) { squares += other.squares; }
    constexpr void widen(double by) { squares *= by; }
  };

  BucketPlaces places;
  double most;  // norm

  static constexpr Sums fold(const Sums (&chains)[kChains]) {
    Sums all = {};
    for (const Sums& chain : chains) all.join(chain);
    return all;
  }
  GW_DEVICE Head head_of(const Sums& sums, std::int64_t) const {
    const double norm = std::sqrt(sums.squares);
    return {norm > most ? static_cast<float>(most / norm) : 1.0f, norm - norm == 0 ? 1u : 0u};
  }
  static constexpr bool same(const Head& a, const Head& b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  }
  constexpr bool finite(const Head& head) const { return head.finite != 0; }
  constexpr void store(const Head& head, std::byte* wire, std::int64_t b) const {
    store_float(wire, b, head.factor);
  }
};

// A rank's gradient and what it keeps.
struct DgcStep {
  const float* grad;
  const float* u;
  const float* v;
  const float* factor;  // null: 1
  float momentum;
  bool nesterov;
  std::int64_t count;

  GW_DEVICE float by() const { return factor == nullptr ? 1.0f : *factor; }
  constexpr Momenta<float> next(float g, float u_before, float v_before, float by) const {
    return next_momenta<float>(g * by, u_before, v_before, momentum, nesterov);
  }
};

// The coming v of one element from each of as many stretches as there are samples.
struct DgcSample {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  DgcStep step;
  RandomStream draws;
  std::int64_t samples;
  float* values;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t s = block.block() * kThreads + block.thread();
    if (s >= samples) return;
    const auto stretch = static_cast<std::uint64_t>(step.count / samples);
    const std::uint64_t within = draws.word(static_cast<std::uint64_t>(s)) * stretch >> 32;
    const auto i = static_cast<std::int64_t>(static_cast<std::uint64_t>(s) * stretch + within);
    values[s] = step.next(step.grad[i], step.u[i], step.v[i], step.by()).v;
  }
};

// The keys that a step may send from: what the sample says, and lower ones.
struct DgcLows {
  static constexpr unsigned kThreads = 32;
  using Shared = NothingShared;

  const SelectState* state;  // whose cut is the sample's
  std::uint32_t* lows;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    if (block.thread() != 0) return;
    const std::uint32_t least = state->cut[kSelectLevels - 1].least;
    std::uint32_t low = least < 1 ? 1 : least;
    for (int j = 0; j < kDgcLows; ++j) {
      lows[j] = low;
      if (low > 1) low = lower_key<float>(low);
    }
  }
};

// The next u and v, and how many v's reach each key: eight elements a thread. Memory: 12 bytes an
// element in, 8 out.
struct DgcAccumulate {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    std::uint32_t lows[kDgcLows];
    std::uint32_t counts[kDgcLows];
  };

  DgcStep step;
  float* next_u;
  float* next_v;
  const std::uint32_t* lows;  // null: nothing is counted
  std::uint32_t* counts;
  bool packed;  // the gradient begins at 16 bytes, as the rest does
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    if (block.thread() < kDgcLows) {
      shared.lows[block.thread()] = lows == nullptr ? 0 : lows[block.thread()];
      shared.counts[block.thread()] = 0;
    }
    block.barrier();
    const float by = step.by();
    std::uint32_t mine[kDgcLows] = {};
    for (std::int64_t begin = kEight * (block.block() * kThreads + block.thread());
         begin < step.count; begin += kEight * block.blocks() * kThreads) {
      const int count = eight_or(begin, step.count);
      float v[kEight];
      advance(block, begin, count, by, v);
      for (int j = 0; j < kEight; ++j) {
        const std::uint32_t key = j < count ? topk_key(v[j]) : 0;
        if (key < shared.lows[kDgcLows - 1]) continue;
        for (int k = 0; k < kDgcLows; ++k) mine[k] += key >= shared.lows[k] ? 1 : 0;
      }
    }
    if (lows == nullptr) return;
    for (int k = 0; k < kDgcLows; ++k) {
      if (mine[k] > 0) block.add(&shared.counts[k], mine[k]);
    }
    block.barrier();
    if (block.thread() < kDgcLows) {
      block.add(&counts[block.thread()], shared.counts[block.thread()]);
    }
  }

  template <class Block>
  GW_DEVICE void advance(Block& block, std::int64_t begin, int count, float by, float* v) const {
    float g[kEight];
    float u[kEight];
    Eight::read({.grad = step.grad, .count = step.count}, begin, count, packed, g);
    Eight::read({.grad = step.u, .count = step.count}, begin, count, true, u);
    Eight::read({.grad = step.v, .count = step.count}, begin, count, true, v);
    for (int j = 0; j < kEight; ++j) {
      const Momenta<float> next = step.next(g[j], u[j], v[j], by);
      u[j] = next.u;
      v[j] = next.v;
      if (j >= count || (is_finite(u[j]) && is_finite(v[j]))) continue;
      const unsigned kind = !is_finite(g[j])   ? kDgcGradient
                            : !is_finite(u[j]) ? kDgcMomentum
                                               : kDgcSum;
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin + j), kind));
    }
    Eight::write(next_u + begin, count, true, u);
    Eight::write(next_v + begin, count, true, v);
  }
};

// v keeps what was not sent; u forgets where something was. A pair a thread.
struct DgcTakeAway {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  PairList sent;
  std::int64_t pairs;
  bool in_words;
  bool masking;
  float* u;
  float* v;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t j = block.block() * kThreads + block.thread();
    if (j >= pairs) return;
    const std::uint32_t i = PairWords::at(sent.indices, j, in_words);
    const float value = std::bit_cast<float>(PairWords::at(sent.values, j, in_words));
    v[i] -= value;
    if (!is_finite(v[i])) block.least(verdict, word_of(i, kDgcLeft));
    if (masking) u[i] = 0;
  }
};

}  // namespace gradwire::cuda
