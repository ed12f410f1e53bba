// What decorators compute element by element on a device.
#pragma once

#include "compress/cuda/slices.h"

namespace gradwire::cuda {

// What they find: a result that is not finite.
inline constexpr unsigned kFeedbackNotFinite = 1;

// each(i) of every element, which says whether its results are finite.
template <class Each>
struct FeedbackPass {
  static constexpr unsigned kThreads = 256;
  static constexpr int kEach = 4;  // of a thread, a block apart
  using Shared = NothingShared;

  Each each;
  std::int64_t count;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    for (int j = 0; j < kEach; ++j) {
      const std::int64_t i = (kEach * block.block() + j) * kThreads + block.thread();
      if (i >= count || each(i)) continue;
      block.least(verdict, word_of(static_cast<std::uint64_t>(i), kFeedbackNotFinite));
    }
  }
};

// p = g + e
struct AddResidual {
  const float* g;
  const float* e;
  float* p;
  constexpr bool operator()(std::int64_t i) const {
    p[i] = g[i] + e[i];
    return is_finite(p[i]);
  }
};

// p -= scale * own
struct TakeOwn {
  const float* own;
  float scale;
  float* p;
  constexpr bool operator()(std::int64_t i) const {
    p[i] = p[i] - own[i] * scale;
    return is_finite(p[i]);
  }
};

// v' = (1 - eta) v + eta g where there is a v, else g; d = v' - h
struct TakeKnown {
  const float* g;
  const float* v;
  const float* h;
  float eta;
  float* next_v;
  float* d;
  constexpr bool operator()(std::int64_t i) const {
    float target = g[i];
    if (v != nullptr) {
      target = (1 - eta) * v[i] + eta * target;
      next_v[i] = target;
    }
    d[i] = target - h[i];
    return is_finite(d[i]);
  }
};

// own = h + scale own; mean = known + scale mean
struct AddToKnown {
  const float* h;
  const float* known;
  float scale;
  float* own;
  float* mean;
  constexpr bool operator()(std::int64_t i) const {
    own[i] = h[i] + scale * own[i];
    mean[i] = known[i] + scale * mean[i];
    return is_finite(own[i]) && is_finite(mean[i]);
  }
};

}  // namespace gradwire::cuda
