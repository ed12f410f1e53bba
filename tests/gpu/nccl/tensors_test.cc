// Ranks that share tensors over NCCL, which a library plays among threads: sums on the streams that
// compute, for which the host does not wait.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gpu/counted_waits.h"
#include "tests/gpu/messages/stage_runs.h"
#include "tests/gpu/nccl/nccl_training.h"
#include "tests/gpu/nccl/over_fake_nccl.h"

namespace gradwire::nccl_tensors_test {
namespace {

using gpu::StageJob;
using gpu::StageOutcome;

class TensorsOverNccl : public gpu::OverFakeNccl {
 protected:
  // Rank 0 has the whole model, about as ranks that share it on the host.
  static void expect_as_host(StageJob job, double within) {
    const StageOutcome host = gpu::train_threads(job, {})[0];
    job.algorithm = "auto";  // NCCL's
    const StageOutcome there = gpu::train_over_nccl(job)[0];
    ASSERT_EQ(there.fault, "");
    ASSERT_EQ(host.fault, "");
    ASSERT_FALSE(there.tensors.empty());
    EXPECT_LE(gpu::distance_of(there, host), within);
    ASSERT_EQ(there.losses.size(), host.losses.size());
    for (std::size_t i = 0; i < host.losses.size(); ++i) {
      EXPECT_NEAR(there.losses[i], host.losses[i], within * host.losses[i]) << i;
    }
    EXPECT_NEAR(there.test_loss, host.test_loss, within * host.test_loss);
    EXPECT_EQ(there.accuracy, host.accuracy);
  }
};

gpu::Family mlp_of(std::vector<std::int64_t> hidden) {
  return {"mlp", {"mlp", std::move(hidden)}, {1, 8, 8}};
}

TEST_F(TensorsOverNccl, OfAnMlp) {
  expect_as_host({.family = mlp_of({24}), .tensors = 2}, 1e-4);
  expect_as_host({.family = mlp_of({24, 17}), .replicas = 2, .tensors = 2}, 1e-4);
  expect_as_host({.family = gpu::stage_mlp(), .stages = 2, .tensors = 2, .steps = 2}, 1e-4);
}

TEST_F(TensorsOverNccl, OfAGpt) {
  for (const bool sequence : {false, true}) {
    expect_as_host({.family = gpu::stage_gpt(),
                    .tensors = 2,
                    .sequence = sequence,
                    .micro_batches = 2,
                    .steps = 2},
                   1e-3);
  }
}

// By rank: how often the host waits in so many steps, and in the evaluation behind them.
std::vector<std::size_t> waits_of(const std::vector<std::int64_t>& hidden, int tensors,
                                  std::int64_t steps) {
  const StageJob job{
      .family = mlp_of(hidden), .tensors = tensors, .steps = steps, .algorithm = "auto"};
  std::vector<std::size_t> all(static_cast<std::size_t>(tensors));
  const auto faults = gpu::on_nccl_threads(
      tensors, {.deadline_seconds = 60}, {GW_FAKE_NCCL}, [&](std::unique_ptr<Communicator> world) {
        const gpu::OwnStream own;
        StageOutcome outcome;
        const std::size_t before = gpu::waits;
        const Status status = gpu::train_stage_rank(*world, gpu::small_problem(job.family), job,
                                                    own.stream(), outcome);
        all[static_cast<std::size_t>(world->rank())] = gpu::waits - before;
        return status.ok() ? std::string() : std::string(status.message());
      });
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
  return all;
}

// A step costs as many waits as on one rank, however many layers are summed over: the host waits
// where it reads losses and compares replicas. Small enough for one bucket of the replicas'
// exchange.
TEST_F(TensorsOverNccl, NoLayerIsWaitedFor) {
  for (const std::vector<std::int64_t>& hidden :
       {std::vector<std::int64_t>{8}, std::vector<std::int64_t>{8, 8, 8, 8, 8}}) {
    const std::size_t alone = waits_of(hidden, 1, 3)[0] - waits_of(hidden, 1, 2)[0];
    const std::vector<std::size_t> three = waits_of(hidden, 2, 3);
    const std::vector<std::size_t> two = waits_of(hidden, 2, 2);
    for (std::size_t rank = 0; rank < three.size(); ++rank) {
      EXPECT_EQ(three[rank] - two[rank], alone) << hidden.size() << " layers, rank " << rank;
    }
  }
}

// Every sum is NCCL's. In 2 steps of 2 micro-batches: a sum forward, of the second layer, one back,
// of the third, and of the loss a maximum and a sum. In the evaluation's 2 passes one forward, and
// of the loss a maximum more.
TEST_F(TensorsOverNccl, SendEverySumByIt) {
  fake_.take_log();
  for (const StageOutcome& rank : gpu::train_over_nccl({.family = mlp_of({24, 17}),
                                  .tensors = 2,
                                  .micro_batches = 2,
                                  .steps = 2,
                                  .algorithm = "auto"})) {
    ASSERT_EQ(rank.fault, "");
  }
  const std::string log = fake_.take_log();
  const auto count = [&](const std::string& name) {
    std::size_t found = 0;
    for (std::size_t at = log.find(name); at != std::string::npos; at = log.find(name, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count("ncclAllReduce rank 1: "), 2U * 2 * 4 + 2 * 4);
  EXPECT_GE(count("ncclAllReduce rank 0: "), 2U * 2 * 4 + 2 * 4);  // replicas alone have one, too
}

}  // namespace
}  // namespace gradwire::nccl_tensors_test
