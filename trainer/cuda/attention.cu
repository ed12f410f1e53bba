// Causal attention. Probabilities lie whole in scratch memory: a thread computes one of them, or
// one feature of a result; a warp goes over a row.
#include <cmath>

#include "trainer/cuda/cuda_layer_kernels.h"
#include "trainer/cuda/each.h"
#include "trainer/cuda/ordered_sums.h"

namespace gradwire::cuda {
namespace {

// Where the parts of a head lie. Heads are numbered row by row.
struct HeadPlaces {
  AttentionShape s;

  GW_DEVICE std::int64_t size() const { return s.width / s.heads; }
  // Feature 0 of position `i` of queries (part 0), keys (1) or values (2).
  GW_DEVICE std::int64_t x(std::int64_t head, std::int64_t i, int part) const {
    return ((head / s.heads * s.positions + i) * 3 + part) * s.width + head % s.heads * size();
  }
  GW_DEVICE std::int64_t y(std::int64_t head, std::int64_t i) const {
    return (head / s.heads * s.positions + i) * s.width + head % s.heads * size();
  }
  GW_DEVICE float factor() const { return 1.0F / std::sqrt(static_cast<float>(size())); }
};

// products[head, i, j] = left's row i times right's row j, for j <= i.
template <bool Values>  // of dy and values; else of queries and keys
struct HeadProducts {
  HeadPlaces at;
  const float* x;
  const float* dy;
  float* products;
  GW_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t n = at.s.positions;
    const std::int64_t j = i % n;
    const std::int64_t row = i / n % n;
    const std::int64_t head = i / (n * n);
    if (j > row) return;
    const float* left = Values ? dy + at.y(head, row) : x + at.x(head, row, 0);
    const float* right = x + at.x(head, j, Values ? 2 : 1);
    float sum = 0;
    for (std::int64_t k = 0; k < at.size(); ++k) sum += left[k] * right[k];
    products[i] = sum;
  }
};

// A warp to each row of scores: eight to a block.
struct ScoreWarps {
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kWarps = kThreads / 32;
  struct Shared {
    float sums[kWarps][32];
  };

  HeadPlaces at;
  float* scores;

  GW_DEVICE std::int64_t rows() const { return at.s.rows * at.s.heads * at.s.positions; }
  template <class Block>
  GW_DEVICE static float largest_of_warp(Block& block, float mine) {
    for (unsigned far = 16; far > 0; far /= 2) {
      const float other = block.shuffle(mine, block.lane() ^ far);
      mine = other > mine ? other : mine;
    }
    return mine;
  }
};

struct ScoresToShares : ScoreWarps {
  float* saved;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t number = block.block() * kWarps + block.warp();
    if (number >= rows()) return;
    const std::int64_t n = at.s.positions;
    const std::int64_t i = number % n;
    float* row = scores + number * n;
    float top = -INFINITY;
    for (std::int64_t j = block.lane(); j <= i; j += 32) {
      row[j] *= at.factor();
      top = row[j] > top ? row[j] : top;
    }
    top = largest_of_warp(block, top);
    float mine = 0;
    for (std::int64_t j = block.lane(); j <= i; j += 32) {
      row[j] = std::exp(row[j] - top);
      mine += row[j];
    }
    const float sum = sum_of_warp(block, shared.sums[block.warp()], mine);
    for (std::int64_t j = block.lane(); j <= i; j += 32) row[j] /= sum;
    if (block.lane() > 0) return;
    float* of_head = saved + number / n * 2 * n;
    of_head[i] = top;
    of_head[n + i] = std::log(sum);
  }
};

// Scores become shares again, and derivatives by shares those by scores, times s.
struct SharesBack : ScoreWarps {
  const float* saved;
  float* changes;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared& shared) const {
    const std::int64_t number = block.block() * kWarps + block.warp();
    if (number >= rows()) return;
    const std::int64_t n = at.s.positions;
    const std::int64_t i = number % n;
    const float* of_head = saved + number / n * 2 * n;
    float* row = scores + number * n;
    float* change = changes + number * n;
    float mine = 0;
    for (std::int64_t j = block.lane(); j <= i; j += 32) {
      row[j] = std::exp(row[j] * at.factor() - of_head[i] - of_head[n + i]);
      mine += row[j] * change[j];
    }
    const float mean = sum_of_warp(block, shared.sums[block.warp()], mine);
    for (std::int64_t j = block.lane(); j <= i; j += 32) {
      change[j] = row[j] * (change[j] - mean) * at.factor();
    }
  }
};

// y = P V
struct SharedValues {
  HeadPlaces at;
  const float* shares;
  const float* x;
  float* y;
  GW_DEVICE void operator()(std::int64_t index) const {
    const std::int64_t n = at.s.positions;
    const std::int64_t k = index % at.size();
    const std::int64_t i = index / at.size() % n;
    const std::int64_t head = index / (at.size() * n);
    const float* row = shares + (head * n + i) * n;
    float sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) sum += row[j] * x[at.x(head, j, 2) + k];
    y[at.y(head, i) + k] = sum;
  }
};

// One feature of one position of dQ, dK and dV.
struct AttentionBack {
  HeadPlaces at;
  const float* shares;
  const float* changes;
  const float* x;
  const float* dy;
  float* dx;
  GW_DEVICE void operator()(std::int64_t index) const {
    const std::int64_t n = at.s.positions;
    const std::int64_t k = index % at.size();
    const std::int64_t i = index / at.size() % n;
    const std::int64_t head = index / (at.size() * n);
    const std::int64_t first = head * n * n;
    float query = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      query += changes[first + i * n + j] * x[at.x(head, j, 1) + k];
    }
    float key = 0;
    float value = 0;
    for (std::int64_t j = i; j < n; ++j) {
      key += changes[first + j * n + i] * x[at.x(head, j, 0) + k];
      value += shares[first + j * n + i] * dy[at.y(head, j) + k];
    }
    dx[at.x(head, i, 0) + k] = query;
    dx[at.x(head, i, 1) + k] = key;
    dx[at.x(head, i, 2) + k] = value;
  }
};

std::int64_t pairs_of(const AttentionShape& s) {
  return s.rows * s.heads * s.positions * s.positions;
}

}  // namespace

void CudaLayerKernels::attention(const AttentionShape& shape, In x, Out scratch, Out saved, Out y) {
  const HeadPlaces at{shape};
  float* scores = scratch.data();
  const ScoresToShares rows{{at, scores}, saved.data()};
  enqueue([&] {
    GW_TRY(for_each("attention_scores", pairs_of(shape),
                    HeadProducts<false>{at, x.data(), nullptr, scores}, stream_));
    GW_TRY(launch("attention_shares", rows,
                  blocks_for(pairs_of(shape) / shape.positions, ScoreWarps::kWarps), stream_));
    return for_each("attention_values", count_of(y), SharedValues{at, scores, x.data(), y.data()},
                    stream_);
  });
}

void CudaLayerKernels::attention_back(const AttentionShape& shape, In x, In saved, In dy,
                                      Out scratch, Out dx) {
  const HeadPlaces at{shape};
  const std::int64_t pairs = pairs_of(shape);
  float* scores = scratch.data();
  float* changes = scores + pairs;
  const SharesBack rows{{at, scores}, saved.data(), changes};
  const AttentionBack each{at, scores, changes, x.data(), dy.data(), dx.data()};
  enqueue([&] {
    GW_TRY(for_each("attention_scores", pairs, HeadProducts<false>{at, x.data(), nullptr, scores},
                    stream_));
    GW_TRY(for_each("attention_changes", pairs,
                    HeadProducts<true>{at, x.data(), dy.data(), changes}, stream_));
    GW_TRY(launch("attention_shares_back", rows,
                  blocks_for(pairs / shape.positions, ScoreWarps::kWarps), stream_));
    return for_each("attention_back", count_of(dy), each, stream_);
  });
}

}  // namespace gradwire::cuda
