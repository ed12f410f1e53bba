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

// Ranks that share tensors: about what they have on the host.
std::string play_shared(std::unique_ptr<Communicator> world, const StageJob& job) {
  const gpu::StageOutcome rank = gpu::train_stages_on(*world, job, kStageDevice);
  if (!rank.fault.empty()) return rank.fault;
  if (world->transport_stats().bytes_staged == 0) return "nothing was staged";
  if (world->rank() > 0) return "";  // the first has the whole model
  const double off = gpu::distance_of(rank, gpu::train_threads(job, {})[0]);
  return off <= 1e-3 ? "" : "off by " + std::to_string(off);
}

TEST(TensorsOverUcx, AreAboutTheHosts) {
  const StageJob gpt{.family = gpu::stage_gpt(), .tensors = 2, .micro_batches = 2, .steps = 2};
  const StageJob mlp{.family = gpu::stage_mlp(), .stages = 2, .tensors = 2, .steps = 2};
  for (const StageJob& job : {gpt, mlp}) {
    EXPECT_THAT(
        on_processes(
            job.ranks(), {.deadline_seconds = 60}, 240,
            [&](std::unique_ptr<Communicator> world) { return play_shared(std::move(world), job); },
            {}, "ucx"),
        ended_cleanly(job.ranks()));
  }
}

}  // namespace
}  // namespace gradwire
