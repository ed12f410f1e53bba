// Replicas whose ranks share tensors and hold stages train as one rank does with the whole model.
// mesh_matrix.cc has all meshes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/adapters/pipeline/mesh_cells.h"
#include "tests/support/fails.h"
#include "tests/support/short_run.h"

namespace gradwire::testing::mesh_training_test {
namespace {

std::vector<Model<float>> shared_models(ModelOptions options, const DataSet& data, int ranks,
                                        bool sequence) {
  std::vector<Model<float>> models;
  for (int rank = 0; ranks > 1 && rank < ranks; ++rank) {
    options.share = {.ranks = ranks, .rank = rank, .sequence = sequence};
    models.push_back(model_for(options, data));
  }
  return models;
}

MeshEnded train_on(const ModelOptions& options, const DataSet& data, int ranks, Training training,
                   bool sequence = false) {
  const Model<float> whole = model_for(options, data);
  training.model = &whole;
  training.ranks = 1;
  return run_mesh({.training = training,
                   .shared = shared_models(options, data, ranks, sequence),
                   .data = &data});
}

// What is tied or not, and on how many ranks: in a short run each of both once.
std::vector<std::pair<bool, int>> cases_of(int few, int many) {
  if (is_short_run()) return {{false, many}, {true, few}};
  return {{false, few}, {false, many}, {true, few}, {true, many}};
}

// Losses and every parameter.
void expect_close(const MeshEnded& ended, const MeshEnded& alone, double within,
                  const std::string& where) {
  expect_losses(ended, alone, within, where);
  ASSERT_TRUE(all_ok(alone));
  for (const auto& [name, values] : alone.tensors) {
    ASSERT_TRUE(ended.tensors.contains(name)) << where << ": " << name;
    const std::vector<float>& seen = ended.tensors.at(name);
    ASSERT_EQ(seen.size(), values.size()) << where << ": " << name;
    double most = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(double{seen[i]} - double{values[i]}));
    }
    EXPECT_LE(most, within) << where << ": " << name;
  }
}

// M12: heads divided among 2 and 3 ranks, a vocabulary that they do not divide, dropout with the
// same mask; 20 steps.
TEST(TensorRanksTrainAsOne, M12_Gpt) {
  ModelOptions options{"gpt"};
  options.width = 24;
  options.layers = 4;
  options.heads = 6;
  options.dropout = 0.1;
  for (const auto& [tied, ranks] : cases_of(2, 3)) {
    options.tied = tied;
    const MeshEnded alone = train_on(options, grammar_text(), 1, {.accumulate = 4});
    expect_close(train_on(options, grammar_text(), ranks, {.accumulate = 4}), alone, 1e-4,
                 format("tied %d, %d ranks", tied, ranks));
  }
}

// What stands between the shared layers is divided by positions, 8 of them: also with a scale, for
// which gradients wait until all are there, and in 16 bits, in which they are added up.
TEST(TensorRanksTrainAsOne, GptBySequence) {
  ModelOptions options{"gpt"};
  options.width = 24;
  options.layers = 2;
  options.heads = 4;
  options.dropout = 0.1;
  const std::int64_t steps = is_short_run() ? 8 : 20;
  for (const auto& [tied, ranks] : cases_of(2, 4)) {
    options.tied = tied;
    const Training training{.accumulate = 4, .steps = steps};
    const MeshEnded alone = train_on(options, grammar_text(), 1, training);
    expect_close(train_on(options, grammar_text(), ranks, training, true), alone, 1e-4,
                 format("tied %d, %d ranks", tied, ranks));
  }
  for (const int accumulate : {1, 2}) {
    Training half{.accumulate = accumulate, .steps = steps, .precision = Precision::kF16};
    half.loss_scale = LossScaleOptions::parse("256").value();
    half.compressor = "qsgd:bits=8";
    expect_losses(train_on(options, grammar_text(), 2, half, true),
                  train_on(options, grammar_text(), 1, half), 5e-3, "fp16");
  }
}

// Outputs whole behind an even number of layers, divided behind an odd one; widths that the ranks
// do not divide.
TEST(TensorRanksTrainAsOne, Mlp) {
  for (const std::vector<std::int64_t>& hidden :
       {std::vector<std::int64_t>{13}, std::vector<std::int64_t>{24, 17}}) {
    const ModelOptions options{"mlp", hidden};
    const MeshEnded alone = train_on(options, digits_data(), 1, {.accumulate = 2});
    for (const int ranks : {2, 3, 4}) {
      expect_close(train_on(options, digits_data(), ranks, {.accumulate = 2}), alone, 1e-4,
                   format("%d ranks", ranks));
    }
  }
}

// Whatever the schedule, gradients are added in the same order: the bits of 1F1B. In zb-h1 a
// derivative is awaited before the other half begins.
TEST(TensorRanksTrainAsOne, BySchedules) {
  ModelOptions options{"gpt"};
  options.width = 24;
  options.layers = 4;
  options.heads = 4;
  options.tied = true;
  const Model<float> whole = model_for(options, grammar_text());
  for (const bool sequence : {false, true}) {
    MeshTraining mesh{.training = {.model = &whole, .ranks = 1, .accumulate = 4, .steps = 4},
                      .shared = shared_models(options, grammar_text(), 2, sequence),
                      .data = &grammar_text()};
    const MeshEnded alone = run_mesh({.training = mesh.training, .data = &grammar_text()});
    mesh.stages = 2;
    const MeshEnded first = run_mesh(mesh);
    expect_close(first, alone, 1e-4, "1f1b");
    for (const PipelineSpec& spec :
         {PipelineSpec{.kind = PipelineKind::kZeroBubbleH1},
          PipelineSpec{.kind = PipelineKind::kZeroBubbleV},
          PipelineSpec{.kind = PipelineKind::kInterleaved, .chunks = 2}}) {
      mesh.spec = spec;
      expect_equal(run_mesh(mesh), first, spec.text());
    }
  }
}

// One step of a net of which peer 1 has a unit whose output is about 1,000: the derivative by its
// weights is as large, and beyond fp16 where it is scaled by 1,024. Peer 0's are not.
MeshEnded step_with_a_large_unit(double loss_scale) {
  const ModelOptions options{"mlp", {12}};
  const Model<float> whole = model_for(options, digits_data());
  MeshTraining mesh{.training = {.model = &whole,
                                 .ranks = 1,
                                 .steps = 1,
                                 .precision = Precision::kF16,
                                 .loss_scale = {.initial = loss_scale, .dynamic = true}},
                    .shared = shared_models(options, digits_data(), 2, false),
                    .data = &digits_data()};
  mesh.start = [](const MeshCoordinates& at, const ParameterTable& table, std::span<float> values) {
    const ParameterInfo& weight = table.front();
    if (at.tp != 1 || weight.name != "fc1.weight") return;
    std::ranges::fill(values.subspan(static_cast<std::size_t>(weight.offset), 64), 50.0F);
  };
  return run_mesh(mesh);
}

TEST(TensorRanksTrainAsOne, AnOverflowOfOnePeerSkipsTheStepOnAll) {
  const MeshEnded skipped = step_with_a_large_unit(1024);
  const MeshEnded made = step_with_a_large_unit(1);
  ASSERT_TRUE(all_ok(skipped));
  ASSERT_TRUE(all_ok(made));
  EXPECT_EQ(skipped.losses, made.losses);
  // Rows of the first layer are divided: peer 0, whose gradients are finite, has the first half.
  const auto half_of = [](const MeshEnded& ended) {
    std::vector<float> values = ended.tensors.at("fc1.weight");
    values.resize(values.size() / 2);
    return values;
  };
  const Model<float> whole = model_for({"mlp", {12}}, digits_data());
  std::vector<float> first(static_cast<std::size_t>(parameter_elems(whole.parameters())));
  init_parameters<float>(whole.parameters(), Training().seed, first);
  first.resize(half_of(made).size());
  EXPECT_EQ(half_of(skipped), first);
  EXPECT_NE(half_of(made), first);
  for (const auto& [name, values] : made.tensors) {
    EXPECT_NE(skipped.tensors.at(name), values) << name;
  }
}

// With stages and without.
TEST(TensorRanksTrainAsOne, PeersAreAsManyAsShareTheModel) {
  const ModelOptions options{"mlp", {16, 16, 16}};
  const Model<float> whole = model_for(options, digits_data());
  std::vector<Model<float>> some = shared_models(options, digits_data(), 4, false);
  some.resize(2, whole);
  for (const int stages : {1, 2}) {
    const MeshEnded ended = run_mesh({.training = {.model = &whole, .ranks = 1, .accumulate = 2},
                                      .stages = stages,
                                      .shared = some,
                                      .data = &digits_data()});
    for (const Status& status : ended.statuses) {
      EXPECT_THAT(status, fails(Code::kInvalidArgument, "2 ranks", "4 share"));
    }
  }
}

// M18: a part of the matrix (mesh_matrix has all of it): axes in pairs; all three and replicas of
// stages train in the next test.
TEST(MeshesTrainAsOneRank, M18_APart) {
  MeshReferences references;
  for (MeshCell cell : {MeshCell{.dp = 2, .tp = 2, .pp = 1, .zero = 3},
                        MeshCell{.dp = 1, .tp = 2, .pp = 2, .recompute = "full"},
                        MeshCell{.dp = 2, .tp = 2, .pp = 1, .zero = 1, .precision = "bf16"}}) {
    if (is_short_run()) cell.steps = 6;
    expect_cell(cell, references);
  }
}

// The last losses are those of a run that went on where it was.
void expect_goes_on(const MeshCell& cell, const std::string& folder, const MeshEnded& whole,
                    double within) {
  SCOPED_TRACE("on " + cell.name());
  const MeshEnded ended = train_cell(cell, {.resume_from = folder});
  ASSERT_TRUE(all_ok(ended));
  const auto steps = static_cast<std::size_t>(cell.steps) - 10;
  ASSERT_EQ(ended.losses.size(), steps);
  for (std::size_t i = 0; i < steps; ++i) {
    EXPECT_NEAR(ended.losses[i], whole.losses[i + 10], within) << "step " << i + 10;
  }
}

// Row-parallel weights, projections by heads, shards of all of them, moments: to fewer and more
// ranks of every axis, and back.
TEST(MeshesTrainAsOneRank, CheckpointsGoOnOnAnyMesh) {
  const std::int64_t steps = is_short_run() ? 13 : 20;
  for (const int zero : is_short_run() ? std::vector{2} : std::vector{0, 2}) {
    const MeshCell full{.dp = 2, .tp = 2, .pp = 2, .zero = zero, .steps = steps};
    const TemporaryFolder from_full;
    const MeshEnded whole = train_cell(full, {.save_to = from_full.path()});
    ASSERT_TRUE(all_ok(whole));
    expect_goes_on(full, from_full.path(), whole, 0);
    const TemporaryFolder from_one;
    const MeshCell alone{.steps = steps};
    const MeshEnded one = train_cell(alone, {.save_to = from_one.path()});
    ASSERT_TRUE(all_ok(one));
    for (const MeshCell& other :
         {alone, MeshCell{.dp = 4, .tp = 1, .pp = 2, .zero = zero, .steps = steps},
          MeshCell{.dp = 1, .tp = 4, .pp = 1, .steps = steps}}) {
      expect_goes_on(other, from_full.path(), whole, 1e-4);
    }
    expect_goes_on(full, from_one.path(), one, 1e-4);
  }
}

}  // namespace
}  // namespace gradwire::testing::mesh_training_test
