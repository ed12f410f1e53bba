// Ranks that share tensors on one device, over messages: about what ranks that share them on the
// host have, and one rank there. On the device that the host plays streams run later than they are
// told, so that a sum which is not awaited, or starts too early, changes the result.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/gpu/messages/stage_runs.h"

namespace gradwire::tensor_ranks_test {
namespace {

using gpu::kStageDevice;
using gpu::StageJob;
using gpu::StageOutcome;
using gpu::train_threads;

void expect_close(const StageOutcome& there, const StageOutcome& other, double within,
                  const std::string& where) {
  ASSERT_EQ(there.fault, "") << where;
  ASSERT_EQ(other.fault, "") << where;
  ASSERT_FALSE(there.tensors.empty()) << where;
  EXPECT_LE(gpu::distance_of(there, other), within) << where;
  ASSERT_EQ(there.losses.size(), other.losses.size()) << where;
  for (std::size_t i = 0; i < other.losses.size(); ++i) {
    EXPECT_NEAR(there.losses[i], other.losses[i], within * other.losses[i]) << where << " " << i;
  }
  EXPECT_NEAR(there.test_loss, other.test_loss, within * other.test_loss) << where;
  EXPECT_EQ(there.accuracy, other.accuracy) << where;
}

// Of rank 0, which has the whole model's parameters, and the losses.
void expect_as_host(const StageJob& job, double within = 1e-4) {
  const std::string where =
      job.family.name + " tp=" + std::to_string(job.tensors) + (job.sequence ? "[sequence]" : "") +
      " pp=" + std::to_string(job.stages) + " dp=" + std::to_string(job.replicas);
  const StageOutcome there = train_threads(job, kStageDevice)[0];
  expect_close(there, train_threads(job, {})[0], within, where + ", the host");
  StageJob alone = job;
  alone.tensors = alone.stages = 1;
  expect_close(there, train_threads(alone, kStageDevice)[0], within, where + ", one rank there");
}

// Outputs whole behind an even number of layers, divided behind an odd one.
TEST(TensorsThere, OfAnMlp) {
  expect_as_host({.family = {"mlp", {"mlp", {24}}, {1, 8, 8}}, .tensors = 2, .eval_every = 2});
  expect_as_host({.family = {"mlp", {"mlp", {24, 17}}, {1, 8, 8}}, .tensors = 3});
}

// A played device takes seconds for a step of it.
TEST(TensorsThere, OfAGpt) {
  StageJob job{.family = gpu::stage_gpt(), .tensors = 2, .micro_batches = 2, .steps = 1};
  job.family.model.tied = false;
  job.family.model.layers = 1;
  expect_close(train_threads(job, kStageDevice)[0], train_threads(job, {})[0], 1e-3, "gpt");
  job.family.model.tied = true;
  job.sequence = true;
  job.optimizer = "adamw";
  expect_close(train_threads(job, kStageDevice)[0], train_threads(job, {})[0], 1e-3, "by sequence");
}

TEST(TensorsThere, WithStagesAndReplicas) {
  for (const PipelineKind kind : {PipelineKind::kOneFOneB, PipelineKind::kZeroBubbleH1}) {
    expect_as_host({.family = gpu::stage_mlp(),
                    .spec = {.kind = kind},
                    .stages = 2,
                    .replicas = 2,
                    .tensors = 2,
                    .steps = 2});
  }
}

TEST(TensorsThere, InSixteenBitsAndComputedAgain) {
  const gpu::Family mlp{"mlp", {"mlp", {24}}, {1, 8, 8}};
  expect_as_host({.family = mlp, .tensors = 2, .precision = Precision::kBF16}, 1e-2);
  expect_as_host({.family = mlp, .tensors = 2, .clip = 0.2, .recompute = "full"});
}

}  // namespace
}  // namespace gradwire::tensor_ranks_test
