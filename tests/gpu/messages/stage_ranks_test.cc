// Stages of a pipeline on one device, over messages: the bits of whole models there, about the
// host's, and as many waits of the host whatever number of micro-batches there is. On the device
// that the host plays streams run later than they are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gpu/messages/stage_runs.h"

namespace gradwire::stage_ranks_test {
namespace {

using gpu::difference;
using gpu::kStageDevice;
using gpu::StageJob;
using gpu::StageOutcome;
using gpu::train_threads;
using gpu::without_stages;

const std::vector<PipelineSpec>& every_spec() {
  static const std::vector<PipelineSpec> kAll{{.kind = PipelineKind::kOneFOneB},
                                              {.kind = PipelineKind::kGpipe},
                                              {.kind = PipelineKind::kInterleaved, .chunks = 2},
                                              {.kind = PipelineKind::kZeroBubbleH1}};
  return kAll;
}

// Every rank has in its place what `whole` has, and about what whole models on the host have.
void expect_as_whole(const StageJob& job, const StageOutcome& whole, const StageOutcome& host,
                     double from_host) {
  const std::string where = job.family.name + " " + job.spec.text() +
                            " pp=" + std::to_string(job.stages) +
                            " dp=" + std::to_string(job.replicas);
  for (const StageOutcome& rank : train_threads(job, kStageDevice)) {
    ASSERT_EQ(difference(rank, whole), "") << where;
    EXPECT_LE(gpu::distance_of(rank, host), from_host) << where;
  }
}

void expect_schedules(const std::vector<PipelineSpec>& specs, StageJob job,
                      const std::vector<int>& stages, double from_host) {
  const StageOutcome whole = train_threads(without_stages(job), kStageDevice)[0];
  const StageOutcome host = train_threads(without_stages(job), {})[0];
  ASSERT_EQ(whole.fault, "");
  ASSERT_EQ(host.fault, "");
  for (const PipelineSpec& spec : specs) {
    if (job.recompute != "none" && spec.kind == PipelineKind::kZeroBubbleH1) continue;
    for (const int p : stages) {
      job.spec = spec;
      job.stages = p;
      expect_as_whole(job, whole, host, from_host);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

void expect_every_schedule(const StageJob& job, const std::vector<int>& stages,
                           double from_host = 1e-4) {
  expect_schedules(every_spec(), job, stages, from_host);
}

TEST(StagesThere, HaveTheBitsOfAWholeModelThere) {
  expect_every_schedule({.family = gpu::stage_mlp(), .steps = 2}, {2, 3});
}

TEST(StagesThere, DeferBatchNormAndEvaluateByIt) {
  expect_every_schedule({.family = gpu::stage_resnet(), .steps = 2, .eval_every = 1}, {2});
}

TEST(StagesThere, AddUpTiedEnds) {
  expect_every_schedule({.family = gpu::stage_gpt(), .steps = 1, .optimizer = "adamw"}, {3}, 1e-3);
}

TEST(StagesThere, WithReplicas) {
  const StageJob two{.family = gpu::stage_mlp(), .replicas = 2};
  expect_every_schedule(two, {2});
  // A played device takes seconds for a run of it.
  expect_schedules({every_spec().front()}, {.family = gpu::stage_gpt(), .replicas = 2, .steps = 2},
                   {2}, 1e-3);
}

TEST(StagesThere, InSixteenBitsAndComputedAgain) {
  expect_every_schedule({.family = gpu::stage_mlp(), .precision = Precision::kBF16}, {2}, 1e-2);
  expect_every_schedule({.family = gpu::stage_mlp(), .recompute = "full"}, {2});
}

// The norm's square is added up stage by stage, as on the host.
TEST(StagesThere, ClipAboutAsAWholeModel) {
  StageJob job{.family = gpu::stage_mlp(), .clip = 0.2};
  const StageOutcome whole = train_threads(job, kStageDevice)[0];
  job.stages = 2;
  for (const StageOutcome& rank : train_threads(job, kStageDevice)) {
    ASSERT_EQ(rank.fault, "");
    EXPECT_LE(gpu::distance_of(rank, whole), 1e-5);
  }
}

}  // namespace
}  // namespace gradwire::stage_ranks_test
