// Ranks that divide a micro-batch's samples, or its images' tiles, train as one rank does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/adapters/pipeline/mesh_cells.h"
#include "tests/support/fails.h"

namespace gradwire::testing::image_training_test {
namespace {

struct Layout {
  std::string name;
  int ranks = 1;
  TensorShare::Layout kind = TensorShare::Layout::kFeatures;
  int rows = 1;
  int columns = 1;
};
const Layout kAlone{"alone"};
const Layout kHybrid2{"hybrid", 2, TensorShare::Layout::kSamples};
const Layout kHybrid4{"hybrid", 4, TensorShare::Layout::kSamples};
const Layout kTiles12{"spatial", 2, TensorShare::Layout::kTiles, 1, 2};
const Layout kTiles21{"spatial", 2, TensorShare::Layout::kTiles, 2, 1};
const Layout kTiles22{"spatial", 4, TensorShare::Layout::kTiles, 2, 2};
const std::vector<Layout> kLayouts{kHybrid2, kHybrid4, kTiles12, kTiles21, kTiles22};

std::vector<Model<float>> parts_of(ModelOptions options, const Layout& layout) {
  std::vector<Model<float>> parts;
  for (int rank = 0; layout.ranks > 1 && rank < layout.ranks; ++rank) {
    options.share = {.ranks = layout.ranks,
                     .rank = rank,
                     .layout = layout.kind,
                     .tile_rows = layout.rows,
                     .tile_columns = layout.columns};
    parts.push_back(model_for(options, digits_data()));
  }
  return parts;
}

MeshEnded train(const ModelOptions& options, const Layout& layout, Training training,
                const Plan& plan = {}) {
  const Model<float> whole = model_for(options, digits_data());
  training.model = &whole;
  return run_mesh(
      {.training = training, .shared = parts_of(options, layout), .data = &digits_data()}, plan);
}

// Parameters and running statistics.
void expect_tensors(const MeshEnded& ended, const MeshEnded& alone, double within) {
  ASSERT_EQ(ended.tensors.size(), alone.tensors.size());
  for (const auto& [name, values] : alone.tensors) {
    const std::vector<float>& seen = ended.tensors.at(name);
    ASSERT_EQ(seen.size(), values.size()) << name;
    double most = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(double{seen[i]} - double{values[i]}));
    }
    EXPECT_LE(most, within) << name;
  }
}

ModelOptions cnn() { return {"cnn"}; }
ModelOptions resnet() {
  ModelOptions options{"resnet8"};
  options.width = 4;
  return options;
}

// M9: weights are those of data parallelism, and of one rank.
TEST(ImageRanksTrainAsOne, M9_HybridHasTheWeightsOfDataParallelism) {
  const Training training{.ranks = 1, .lr = 0.05, .steps = 5};
  const MeshEnded alone = train(cnn(), kAlone, training);
  Training replicas = training;
  replicas.ranks = 2;
  const MeshEnded data_parallel = train(cnn(), kAlone, replicas);
  for (const Layout& layout : {kHybrid2, kHybrid4}) {
    const MeshEnded ended = train(cnn(), layout, training);
    ASSERT_TRUE(all_ok(ended));
    expect_tensors(ended, alone, 1e-5);
    expect_tensors(ended, data_parallel, 1e-5);
  }
}

// M17, M9: 20 steps with accumulation, and batch norm over all samples and tiles.
TEST(ImageRanksTrainAsOne, LossesAreOneRanks) {
  for (const ModelOptions& options : {cnn(), resnet()}) {
    const Training training{.ranks = 1, .accumulate = 2, .lr = 0.05};
    const MeshEnded alone = train(options, kAlone, training);
    for (const Layout& layout : kLayouts) {
      const MeshEnded ended = train(options, layout, training);
      SCOPED_TRACE(options.name);
      expect_losses(ended, alone, 1e-4, format("%s %d", layout.name.c_str(), layout.ranks));
      expect_tensors(ended, alone, 1e-4);
    }
  }
}

// With replicas, sharded states, layers computed again, 16 bits with a scale, compressed gradients.
// In 16 bits other sums are rounded otherwise, which batch norm makes more of than a bound allows.
TEST(ImageRanksTrainAsOne, ComposeWithReplicas) {
  struct Case {
    ModelOptions model;
    Training training;
    double within;
  };
  const std::vector<Case> all{
      {resnet(), {.ranks = 2, .accumulate = 2, .steps = 8, .optimizer = "adamw", .zero = 1}, 1e-4},
      {resnet(), {.ranks = 2, .lr = 0.05, .steps = 8, .zero = 2, .recompute = "full"}, 1e-4},
      {resnet(),
       {.ranks = 2, .accumulate = 2, .momentum_at = MomentumAt::kWorker, .steps = 8},
       1e-4},
      {cnn(),
       {.ranks = 2, .accumulate = 2, .lr = 0.05, .zero = 3, .precision = Precision::kBF16},
       2e-3},
      {cnn(),
       {.compressor = "qsgd:bits=8",
        .ranks = 1,
        .accumulate = 2,
        .lr = 0.05,
        .precision = Precision::kF16,
        .loss_scale = LossScaleOptions::parse("256").value()},
       2e-3}};
  for (const auto& [model, training, within] : all) {
    const MeshEnded whole = train(model, kAlone, training);
    for (const Layout& layout : {kHybrid2, kTiles12}) {
      expect_losses(train(model, layout, training), whole, within,
                    format("%s, zero %d, %s", layout.name.c_str(), training.zero,
                           training.compressor.c_str()));
    }
  }
}

// What replicas exchange is coded: ranks of tp have equal copies all the same (run_mesh() looks).
TEST(ImageRanksTrainAsOne, CopiesStayEqualUnderCompression) {
  for (const std::string compressor : {"qsgd:bits=4,ef=ef14", "topk:ratio=0.2,ef=ef14"}) {
    const Training training{.compressor = compressor, .ranks = 2, .lr = 0.05, .steps = 8};
    for (const Layout& layout : {kHybrid2, kTiles21}) {
      const MeshEnded ended = train(resnet(), layout, training);
      ASSERT_TRUE(all_ok(ended)) << compressor;
      EXPECT_LT(ended.losses.back(), ended.losses.front()) << compressor;
    }
  }
}

// From one layout to another, to one rank and back: momenta, running statistics.
TEST(ImageRanksTrainAsOne, CheckpointsGoOnUnderAnyLayout) {
  const Training training{.ranks = 1, .lr = 0.05};
  const std::vector<std::pair<Layout, std::vector<Layout>>> all{
      {kHybrid2, {kHybrid2, kAlone, kTiles21}},
      {kTiles22, {kTiles22, kAlone, kHybrid2}},
      {kAlone, {kTiles12}}};
  for (const auto& [from, others] : all) {
    const TemporaryFolder folder;
    const MeshEnded whole = train(resnet(), from, training, {.save_to = folder.path()});
    ASSERT_TRUE(all_ok(whole));
    for (const Layout& to : others) {
      SCOPED_TRACE(from.name + " to " + to.name);
      const MeshEnded ended = train(resnet(), to, training, {.resume_from = folder.path()});
      ASSERT_TRUE(all_ok(ended));
      ASSERT_EQ(ended.losses.size(), 10U);
      const double within = from.name == to.name ? 0 : 1e-4;
      for (std::size_t i = 0; i < 10; ++i) {
        EXPECT_NEAR(ended.losses[i], whole.losses[i + 10], within) << "step " << i + 10;
      }
    }
  }
}

// Before the first step, on every rank.
TEST(ImageRanksTrainAsOne, SamplesThatDoNotDivideAreNamed) {
  const MeshEnded ended = train(cnn(), kHybrid4, {.ranks = 1, .accumulate = 8});
  ASSERT_EQ(ended.statuses.size(), 4U);
  for (const Status& status : ended.statuses) {
    EXPECT_THAT(status, fails(Code::kInvalidArgument, "'samples'", "6 samples", "4 ranks of tp"));
  }
}

TEST(ImageRanksTrainAsOne, StagesAreRefused) {
  const Model<float> whole = model_for(cnn(), digits_data());
  const MeshEnded ended = run_mesh({.training = {.model = &whole, .ranks = 1, .accumulate = 2},
                                    .stages = 2,
                                    .shared = parts_of(cnn(), kHybrid2),
                                    .data = &digits_data()});
  ASSERT_EQ(ended.statuses.size(), 4U);
  for (const Status& status : ended.statuses) {
    EXPECT_THAT(status, fails(Code::kUnsupported, "stages", "a schedule of 2 ranks", "pp=1"));
  }
}

}  // namespace
}  // namespace gradwire::testing::image_training_test
