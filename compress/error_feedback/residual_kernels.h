// A residual at rest on a device (stored_residual.h), and what is computed with it.
#pragma once

#include "base/philox.h"
#include "base/small_floats.h"
#include "compress/cuda/bucket_grid.h"
#include "compress/cuda/slices.h"
#include "compress/error_feedback/residual_arithmetic.h"

namespace gradwire::cuda {

// At most one of the three storages is there; none: zeros.
struct RestingResidual {
  float* full = nullptr;
  std::uint16_t* halves = nullptr;
  std::int8_t* codes = nullptr;
  float* scales = nullptr;  // of blocks of 256

  constexpr float at(std::int64_t i) const {
    if (full != nullptr) return full[i];
    if (halves != nullptr) return float_from_bf16(halves[i]);
    if (codes != nullptr) return static_cast<float>(codes[i]) * scales[i / 256];
    return 0;
  }
};

// p = g + e
struct AddResting {
  const float* g;
  RestingResidual e;
  float* p;
  constexpr bool operator()(std::int64_t i) const {
    p[i] = g[i] + e.at(i);
    return is_finite(p[i]);
  }
};

// own *= scale; p = beta e + (1 - beta) (p - own), or p - own where beta is 0
struct BlendRest {
  RestingResidual e;
  float scale;
  float beta;
  float* own;
  float* p;
  constexpr bool operator()(std::int64_t i) const {
    own[i] = own[i] * scale;
    float left = p[i] - own[i];
    if (beta > 0) left = beta * e.at(i) + (1 - beta) * left;
    p[i] = left;
    return is_finite(left);
  }
};

// p -= sent; then p = beta e + (1 - beta) p unless beta is 0. Of the elements from `first` on.
struct SettleRest {
  const float* sent;
  RestingResidual e;
  std::int64_t first;
  float beta;
  float* p;
  constexpr bool operator()(std::int64_t i) const {
    const std::int64_t at = first + i;
    float left = p[at] - sent[i];
    if (beta > 0) left = beta * e.at(at) + (1 - beta) * left;
    p[at] = left;
    return is_finite(left);
  }
};

// Stores finite values: a warp for each block of 256, eight neighbours to a lane, whose draws are
// one block of Philox.
struct StoreResidual {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kBlock = 256;
  static constexpr int kEach = 8;
  using Shared = NothingShared;

  const float* values;
  std::int64_t count;
  RandomStream draws;
  RestingResidual to;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t b = block.block() * (kThreads / 32) + block.warp();
    if (b * kBlock >= count) return;
    const std::int64_t first = b * kBlock + kEach * block.lane();
    Magnitude largest;
    for (int j = 0; j < kEach; ++j) {
      if (first + j < count) largest.see(values[first + j]);
    }
    largest.join(block);
    const float scale = residual_scale(static_cast<double>(std::bit_cast<float>(largest.most)));
    if (to.codes != nullptr && block.lane() == 0) to.scales[b] = scale;
    const auto words = draws.block(static_cast<std::uint64_t>(first) / 8);
    for (int j = 0; j < kEach; ++j) {
      const std::int64_t i = first + j;
      if (i >= count) continue;
      const unsigned draw = half_word(words, static_cast<unsigned>(j));
      if (to.full != nullptr) to.full[i] = values[i];
      if (to.halves != nullptr) to.halves[i] = bf16_stochastic(values[i], draw);
      if (to.codes != nullptr) {
        to.codes[i] = residual_code(static_cast<double>(values[i]), scale, draw * 0x1p-16);
      }
    }
  }
};

}  // namespace gradwire::cuda
