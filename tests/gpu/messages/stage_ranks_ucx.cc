// Stages of a pipeline on one device over UCX, through the host: ranks as processes, each of which
// finds in its place the bits of a whole model there.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/gpu/messages/stage_runs.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/process_ranks.h"

namespace gradwire {
namespace {

using gpu::kStageDevice;
using gpu::StageJob;

std::string play(std::unique_ptr<Communicator> world, const StageJob& job) {
  const gpu::StageOutcome rank = gpu::train_stages_on(*world, job, kStageDevice);
  if (!rank.fault.empty()) return rank.fault;
  if (world->transport_stats().bytes_staged == 0) return "nothing was staged";
  return difference(rank, gpu::train_threads(gpu::without_stages(job), kStageDevice)[0]);
}

void expect_whole_bits(const StageJob& job) {
  EXPECT_THAT(on_processes(
                  job.ranks(), {.deadline_seconds = 60}, 240,
                  [&](std::unique_ptr<Communicator> world) { return play(std::move(world), job); },
                  {}, "ucx"),
              ended_cleanly(job.ranks()))
      << job.spec.text();
}

TEST(StagesOverUcx, HaveTheBitsOfAWholeModelThere) {
  StageJob job{.family = gpu::stage_mlp(), .stages = 2};
  for (const PipelineKind kind : {PipelineKind::kOneFOneB, PipelineKind::kInterleaved}) {
    job.spec.kind = kind;
    expect_whole_bits(job);
  }
  job.spec.kind = PipelineKind::kZeroBubbleH1;
  job.stages = 3;
  expect_whole_bits(job);
}

TEST(StagesOverUcx, WithTiedEndsAndReplicas) {
  expect_whole_bits({.family = gpu::stage_gpt(), .stages = 2, .replicas = 2, .steps = 2});
}

}  // namespace
}  // namespace gradwire
