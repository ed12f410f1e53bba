// A GPT on meshes of replicas, tensor ranks and stages, against one rank: what the matrix of all of
// them and its sample in the tests share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/adapters/pipeline/mesh_runs.h"
#include "tests/adapters/pipeline/stage_models.h"

namespace gradwire::testing {

struct MeshCell {
  int dp = 1;
  int tp = 1;
  int pp = 1;
  int zero = 0;
  std::string recompute = "none";
  std::string precision = "fp32";
  std::string compressor = "none";
  std::uint64_t seed = 3;
  bool sequence = false;
  std::int64_t steps = 20;

  int ranks() const { return dp * tp * pp; }
  std::string name() const {
    return format("dp=%d tp=%d%s pp=%d zero=%d recompute=%s %s %s seed=%llu", dp, tp,
                  sequence ? "[sequence]" : "", pp, zero, recompute.c_str(), precision.c_str(),
                  compressor.c_str(), static_cast<unsigned long long>(seed));
  }
};

constexpr int kMeshMicroBatches = 24;  // a step, over all replicas, of 4 rows each

// 4 layers, 24 heads, width 96, so that 2, 3, 4, 6 and 8 divide what they have to.
inline ModelOptions mesh_gpt() {
  ModelOptions options{"gpt"};
  options.width = 96;
  options.layers = 4;
  options.heads = 24;
  options.tied = true;
  return options;
}

inline const std::vector<Model<float>>& mesh_gpt_parts(int ranks, bool sequence) {
  static std::map<std::pair<int, bool>, std::vector<Model<float>>> made;
  std::vector<Model<float>>& parts = made[{ranks, sequence}];
  ModelOptions options = mesh_gpt();
  for (int rank = static_cast<int>(parts.size()); ranks > 1 && rank < ranks; ++rank) {
    options.share = {.ranks = ranks, .rank = rank, .sequence = sequence};
    parts.push_back(model_for(options, grammar_text()));
  }
  return parts;
}

inline MeshEnded train_cell(const MeshCell& cell, const Plan& plan = {}) {
  static const Model<float> whole = model_for(mesh_gpt(), grammar_text());
  const bool scaled = cell.precision == "fp16";
  return run_mesh(
      {.training = {.model = &whole,
                    .compressor = cell.compressor,
                    .ranks = cell.dp,
                    .accumulate = kMeshMicroBatches / cell.dp,
                    .batch = 4 * kMeshMicroBatches,
                    .seed = cell.seed,
                    .lr = 0.001,
                    .steps = cell.steps,
                    .optimizer = "adamw",
                    .zero = cell.zero,
                    .precision = parse_precision(cell.precision).value(),
                    .loss_scale = LossScaleOptions::parse(scaled ? "dynamic" : "none").value(),
                    .recompute = cell.recompute},
       .stages = cell.pp,
       .shared = mesh_gpt_parts(cell.tp, cell.sequence),
       .data = &grammar_text()},
      plan);
}

// Every step's loss.
inline void expect_losses(const MeshEnded& ended, const MeshEnded& alone, double within,
                          const std::string& where) {
  SCOPED_TRACE(where);
  ASSERT_TRUE(all_ok(ended));
  ASSERT_EQ(ended.losses.size(), alone.losses.size());
  for (std::size_t i = 0; i < alone.losses.size(); ++i) {
    EXPECT_NEAR(ended.losses[i], alone.losses[i], within) << "step " << i;
  }
}

// Runs that the cell's is compared with are made once.
class MeshReferences {
 public:
  // One rank, whose rounding differs where sums are divided otherwise.
  void expect_as_one_rank(const MeshCell& cell, const MeshEnded& ended) {
    expect_losses(ended, of({.precision = cell.precision, .steps = cell.steps}),
                  cell.precision == "fp32" ? 1e-4 : 5e-3, cell.name());
  }
  // Whole models in the same replicas: bit for bit without tensor ranks.
  void expect_as_replicas(const MeshCell& cell, const MeshEnded& ended) {
    expect_equal(ended, of({.dp = cell.dp, .precision = cell.precision, .steps = cell.steps}),
                 cell.name());
  }
  // The mean of the last losses is where those of other seeds are, and as far again. A divided
  // tensor has a scale, a choice or factors for each of its parts, so its payloads are others. Five
  // seeds: three lie close together by chance too often to tell how far seeds lie apart.
  void expect_in_spread(const MeshCell& cell, const MeshEnded& ended) {
    double low = 1e300;
    double high = -1e300;
    for (const std::uint64_t seed : {3, 4, 5, 6, 7}) {
      const double loss = last_losses(
          of({.dp = cell.dp, .compressor = cell.compressor, .seed = seed, .steps = cell.steps}));
      low = std::min(low, loss);
      high = std::max(high, loss);
    }
    SCOPED_TRACE(cell.name());
    ASSERT_TRUE(all_ok(ended));
    EXPECT_GE(last_losses(ended), low - (high - low));
    EXPECT_LE(last_losses(ended), high + (high - low));
  }

 private:
  static double last_losses(const MeshEnded& ended) {
    constexpr std::size_t kLast = 5;
    if (ended.losses.size() < kLast) return 1e300;
    double sum = 0;
    for (std::size_t i = 0; i < kLast; ++i) sum += ended.losses[ended.losses.size() - 1 - i];
    return sum / kLast;
  }
  const MeshEnded& of(const MeshCell& cell) {
    const auto found = made_.find(cell.name());
    return found != made_.end() ? found->second
                                : made_.emplace(cell.name(), train_cell(cell)).first->second;
  }

  std::map<std::string, MeshEnded> made_;
};

inline void expect_cell(const MeshCell& cell, MeshReferences& references) {
  const MeshEnded ended = train_cell(cell);
  if (cell.compressor != "none") return references.expect_in_spread(cell, ended);
  references.expect_as_one_rank(cell, ended);
  if (cell.tp == 1 && cell.recompute == "none") references.expect_as_replicas(cell, ended);
}

}  // namespace gradwire::testing
