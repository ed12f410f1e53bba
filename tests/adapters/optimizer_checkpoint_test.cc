// Optimizers, methods that compress at the optimizer, and narrow precisions, resumed bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/adapters/training_runs.h"
#include "tests/support/fails.h"

namespace gradwire::testing::optimizer_checkpoint_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

TEST(OptimizerCheckpoint, EveryOptimizerResumesBitForBit) {
  for (const std::string optimizer : {"sgd", "nesterov", "adamw", "lamb"}) {
    SCOPED_TRACE(optimizer);
    expect_exact({.lr = 0.005, .optimizer = optimizer});
    expect_exact(
        {.compressor = "topk:ratio=0.05,ef=ef14,min_elems=0", .lr = 0.005, .optimizer = optimizer});
  }
}

// The checkpoint after 10 steps lies before, at and after the place where a method changes its
// ways.
TEST(OptimizerCheckpoint, EveryMethodResumesBitForBit) {
  for (const std::string optimizer :
       {"onebit_adam:freeze=5", "onebit_adam:freeze=10", "onebit_adam:freeze=15",
        "onebit_lamb:freeze=5", "onebit_lamb:freeze=15", "zero_one_adam:freeze=15", "demo",
        "diloco:inner_steps=5", "diloco:inner_steps=10"}) {
    SCOPED_TRACE(optimizer);
    expect_exact({.lr = 0.005, .optimizer = optimizer});
  }
}

TEST(OptimizerCheckpoint, EveryStageOfZeroResumesBitForBit) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    for (const std::string optimizer : {"sgd", "adamw", "lamb"}) {
      expect_exact({.ranks = 3, .lr = 0.005, .optimizer = optimizer, .zero = stage});
    }
    expect_exact({.compressor = "qsgd:bits=4,ef=ef14,min_elems=0,dense_1d=false",
                  .ranks = 3,
                  .zero = stage,
                  .gathered = "cast:bf16"});
  }
}

// Elementwise steps know no ranks: with exact sums in canonical order, shards cut for others go on
// as those that were not, at any stage that shards.
TEST(OptimizerCheckpoint, ShardsGoOnExactlyOnAnotherNumberOfRanks) {
  for (const std::string optimizer : {"sgd", "adamw"}) {
    const std::pair<int, int> stages[] = {{1, 2}, {3, 3}, {3, 1}, {2, 3}};
    for (const auto& [before, after] : stages) {
      const TemporaryFolder folder;
      const Outcome whole = run({.ranks = 4, .lr = 0.005, .optimizer = optimizer, .zero = before},
                                {.save_to = folder.path()});
      ASSERT_TRUE(all_ok(whole));
      const Outcome resumed =
          run({.ranks = 1, .accumulate = 4, .lr = 0.005, .optimizer = optimizer, .zero = after},
              {.resume_from = folder.path()});
      ASSERT_TRUE(all_ok(resumed));
      EXPECT_EQ(resumed.parameters[0], whole.parameters[0]) << optimizer << before << after;
    }
  }
}

TEST(OptimizerCheckpoint, RanksThatStepAloneCannotSave) {
  const TemporaryFolder folder;
  const Outcome outcome =
      run({.lr = 0.005, .optimizer = "diloco:inner_steps=7"}, {.save_to = folder.path()});
  for (const Status& status : outcome.statuses) {
    EXPECT_THAT(status, fails(kInvalid, "exchanges"));
  }
}

TEST(OptimizerCheckpoint, NarrowPrecisionsAndTheirLossScaleResumeBitForBit) {
  expect_exact({.precision = Precision::kBF16});
  LossScaleOptions dynamic;
  dynamic.initial = 65536;
  dynamic.dynamic = true;
  dynamic.growth_every = 4;  // it keeps changing, before the checkpoint and after it
  expect_exact({.precision = Precision::kF16, .loss_scale = dynamic});
  expect_exact({.compressor = "topk:ratio=0.05,ef=ef14,min_elems=0",
                .precision = Precision::kF16,
                .loss_scale = dynamic});
}

}  // namespace
}  // namespace gradwire::testing::optimizer_checkpoint_test
