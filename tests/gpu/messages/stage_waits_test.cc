// How often the host waits for the device while stages train: the same number of times whatever
// number of micro-batches there is, beside the messages that it reads.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "tests/gpu/counted_waits.h"
#include "tests/gpu/messages/stage_runs.h"

namespace gradwire::stage_waits_test {
namespace {

using gpu::StageJob;
using gpu::StageOutcome;
using gpu::waits;

// By rank: waits of `steps` steps and of the evaluation behind them.
std::vector<std::size_t> waits_of(StageJob job, int micro_batches, std::int64_t steps) {
  job.micro_batches = micro_batches;
  job.steps = steps;
  auto made = make_inproc_communicators(job.ranks(), {.deadline_seconds = 60});
  if (!made.has_value()) return {};
  return on_threads<std::size_t>(job.ranks(), [&](int rank) {
    const auto world = std::move(made.value()[static_cast<std::size_t>(rank)]);
    const std::size_t before = waits;
    const StageOutcome outcome = gpu::train_stages_on(*world, job, gpu::kStageDevice);
    EXPECT_EQ(outcome.fault, "");
    return waits - before;
  });
}

// A step more costs so many waits more, by rank.
std::vector<std::size_t> waits_of_a_step(const StageJob& job, int micro_batches) {
  std::vector<std::size_t> of_a_step = waits_of(job, micro_batches, 3);
  const std::vector<std::size_t> fewer = waits_of(job, micro_batches, 2);
  for (std::size_t rank = 0; rank < of_a_step.size(); ++rank) of_a_step[rank] -= fewer[rank];
  return of_a_step;
}

TEST(StageWaits, AreAStepsAndNoMicroBatchs) {
  for (const gpu::Family& family : {gpu::stage_mlp(), gpu::stage_resnet()}) {
    for (const PipelineKind kind : {PipelineKind::kOneFOneB, PipelineKind::kZeroBubbleH1}) {
      const StageJob job{.family = family, .spec = {.kind = kind}, .stages = 2};
      const auto few = waits_of_a_step(job, 2);
      const auto many = waits_of_a_step(job, 8);
      ASSERT_EQ(few.size(), 2U);
      EXPECT_EQ(few, many) << family.name;
      for (const std::size_t rank : many) {
        EXPECT_GE(rank, 1U) << family.name;  // a step's end is waited for
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::stage_waits_test
