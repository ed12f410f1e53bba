// ZeRO on one device: shards have the bits of whole training there, and go on from files that the
// host or another stage has written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/gpu/messages/rank_training.h"
#include "tests/support/temporary_folder.h"
#include "trainer/accounts/run_memory.h"

namespace gradwire::sharded_ranks_test {
namespace {

using gpu::distance;
using gpu::expect_equal_replicas;
using gpu::kCnn;
using gpu::kDevice;
using gpu::kHalf;
using gpu::kSteps;
using gpu::RankJob;
using gpu::train_ranks;

constexpr std::array kStages{1, 2, 3};

TEST(ShardsThere, HaveTheBitsOfWholeTraining) {
  for (RankJob job : {RankJob{.ranks = 4}, RankJob{.optimizer = "adamw"},
                      RankJob{.optimizer = "nesterov", .precision = Precision::kBF16},
                      RankJob{.optimizer = "adamw", .precision = Precision::kF16},
                      RankJob{.family = kCnn, .optimizer = "adamw"}}) {
    const auto whole = train_ranks(job, kDevice);
    expect_equal_replicas(whole);
    if (HasFatalFailure()) return;
    for (const int stage : kStages) {
      job.stage = stage;
      const auto shards = train_ranks(job, kDevice);
      expect_equal_replicas(shards);
      if (HasFatalFailure()) return;
      EXPECT_EQ(shards[0].parameters, whole[0].parameters)
          << job.optimizer << ", " << to_string(job.precision) << ", stage " << stage;
      EXPECT_EQ(shards[0].losses, whole[0].losses);
    }
  }
}

// Norms are sums over shards, in another order than of the whole.
TEST(ShardsThere, HaveTheNormsOfTheWhole) {
  for (const std::string optimizer : {"lamb", "sgd"}) {
    RankJob job{.optimizer = optimizer, .clip = 0.1};
    const auto whole = train_ranks(job, kDevice);
    job.clip = 0;
    const auto longer = train_ranks(job, kDevice);
    expect_equal_replicas(whole);
    if (HasFatalFailure()) return;
    EXPECT_NE(longer[0].parameters, whole[0].parameters) << "nothing is clipped";
    job.clip = 0.1;
    for (const int stage : kStages) {
      job.stage = stage;
      const auto shards = train_ranks(job, kDevice);
      expect_equal_replicas(shards);
      if (HasFatalFailure()) return;
      EXPECT_LE(distance(whole[0].parameters, shards[0].parameters), 1e-6) << optimizer;
    }
  }
}

// The host's steps have the device's bits, and so have whole tensors' and shards'.
TEST(ShardsThere, HaveTheSameBitsOffloaded) {
  for (RankJob job : {RankJob{.optimizer = "adamw"},
                      RankJob{.optimizer = "nesterov", .precision = Precision::kBF16}}) {
    const auto resident = train_ranks(job, kDevice);
    expect_equal_replicas(resident);
    if (HasFatalFailure()) return;
    for (const int stage : {0, 1, 2, 3}) {
      job.stage = stage;
      job.offload = stage == 3 ? Offload::kParameters : Offload::kOptimizer;
      const auto away = train_ranks(job, kDevice);
      expect_equal_replicas(away);
      if (HasFatalFailure()) return;
      EXPECT_EQ(away[0].parameters, resident[0].parameters) << "stage " << stage;
    }
  }
}

// Nothing comes and goes there: whole tensors are held at every stage, beside the shards.
TEST(ShardsThere, HoldWhatWasPlanned) {
  for (RankJob job : {RankJob{.optimizer = "adamw"}, RankJob{.optimizer = "lamb"},
                      RankJob{.optimizer = "adamw", .precision = Precision::kBF16}}) {
    for (const int stage : kStages) {
      job.stage = stage;
      const auto ranks = train_ranks(job, kDevice);
      expect_equal_replicas(ranks);
      if (HasFatalFailure()) return;
      const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[job.family]);
      for (int rank = 0; rank < job.ranks; ++rank) {
        const RunMemoryQuestion question{.micro_batch = 8 / job.ranks,
                                         .precision = job.precision,
                                         .optimizer = job.optimizer,
                                         .stage = stage,
                                         .rank = rank,
                                         .ranks = job.ranks,
                                         .offload_chunk = 777,
                                         .space = MemorySpace::kCuda};
        const auto planned = run_memory(problem.model, question);
        ASSERT_TRUE(planned.has_value()) << planned.error().message();
        const MemoryUse& held = ranks[static_cast<std::size_t>(rank)].device;
        EXPECT_EQ(held.peak, planned.value().device) << job.optimizer << ", stage " << stage;
      }
    }
  }
}

// What is rounded may fall to the other side of a half: close, not equal.
TEST(ShardsThere, TrainCompressedAboutAsOnTheHost) {
  for (const int stage : kStages) {
    RankJob job{.compressor = "qsgd:bits=8,ef=ef14", .optimizer = "adamw"};
    job.stage = stage;
    job.parameters = "cast:bf16";
    const auto host = train_ranks(job, {});
    const auto there = train_ranks(job, kDevice);
    expect_equal_replicas(host);
    expect_equal_replicas(there);
    if (HasFatalFailure()) return;
    EXPECT_LE(distance(host[0].parameters, there[0].parameters), 1e-2) << stage;
    EXPECT_NEAR(there[0].losses.back(), host[0].losses.back(), 1e-2 * host[0].losses.back());
  }
}

class ShardedCheckpoints : public ::testing::TestWithParam<int> {};

TEST_P(ShardedCheckpoints, GoOnBitForBitAndOnTheHostAndWithOtherRanks) {
  const TemporaryFolder folder;
  RankJob job{.optimizer = "adamw"};
  job.stage = GetParam();
  job.save_to = folder.path();
  const auto straight = train_ranks(job, kDevice);
  expect_equal_replicas(straight);
  if (HasFatalFailure()) return;
  job.save_to.clear();
  job.resume_from = folder.path();
  for (const int stage : kStages) {
    job.stage = stage;
    const auto again = train_ranks(job, kDevice);
    expect_equal_replicas(again);
    if (HasFatalFailure()) return;
    EXPECT_EQ(again[0].parameters, straight[0].parameters) << stage;
  }
  job.stage = GetParam();
  const auto host = train_ranks(job, {});
  expect_equal_replicas(host);
  if (HasFatalFailure()) return;
  EXPECT_LE(distance(straight[0].parameters, host[0].parameters), 1e-4);
  job.ranks = 4;
  const auto more = train_ranks(job, kDevice);
  expect_equal_replicas(more);
  if (HasFatalFailure()) return;
  EXPECT_LE(distance(straight[0].parameters, more[0].parameters), 1e-4);
  EXPECT_EQ(more[0].losses.size(), static_cast<std::size_t>(kSteps - kHalf));
}

INSTANTIATE_TEST_SUITE_P(Stages, ShardedCheckpoints, ::testing::ValuesIn(kStages));

}  // namespace
}  // namespace gradwire::sharded_ranks_test
