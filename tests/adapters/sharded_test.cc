// ZeRO: rows Z3, Z4 and Z7 of the trainer's acceptance table, and what shards promise besides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/adapters/sharded_runs.h"
#include "tests/support/fails.h"

namespace gradwire::testing::sharded_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

// The bits of all stages, over optimizers and micro-batches.
TEST(Sharded, Z7_StagesGiveTheSameBits) {
  for (const int ranks : {2, 4}) {
    for (const std::string optimizer : {"sgd", "adamw"}) {
      for (const int accumulate : {1, 4}) {
        Setting setting;
        setting.ranks = ranks;
        setting.training = twenty_steps(optimizer, accumulate);
        setting.algorithm = "canonical";
        const Flat wanted = train(setting)[0].params;
        for (const int stage : {1, 2, 3}) {
          setting.stage = stage;
          EXPECT_EQ(train(setting)[0].params, wanted)
              << optimizer << ", stage " << stage << ", " << ranks << " ranks";
        }
      }
    }
  }
}

TEST(Sharded, Z7_NarrowStorageGivesTheSameBits) {
  for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
    Setting setting;
    setting.training = twenty_steps("adamw", 1);
    setting.training.precision = precision;
    if (precision == Precision::kF16) {
      setting.training.loss_scale = LossScaleOptions::parse("dynamic").value();
    }
    setting.algorithm = "canonical";
    const Flat wanted = train(setting)[0].params;
    for (const int stage : {1, 2, 3}) {
      setting.stage = stage;
      EXPECT_EQ(train(setting)[0].params, wanted) << to_string(precision) << ", stage " << stage;
    }
  }
}

// The same ring, and the same bytes: a reduce-scatter and an all-gather are an all-reduce. A ring
// adds in an order that depends on the chunk, so chunks must be alike: tensor by tensor.
TEST(Sharded, Z3_OptimizerStateIsShardedForNoMoreBytes) {
  for (const int ranks : {2, 4}) {
    Setting setting;
    setting.ranks = ranks;
    setting.training = twenty_steps("adamw", 1);
    setting.bucket_bytes = 1;
    const std::vector<Outcome> whole = train(setting);
    setting.stage = 1;
    const std::vector<Outcome> shards = train(setting);
    EXPECT_EQ(shards[0].params, whole[0].params);
    std::int64_t elems = 0;
    std::uint64_t sharded_bytes = 0;
    std::uint64_t whole_bytes = 0;
    for (const Outcome& outcome : shards) {
      elems += outcome.state_elems;
      sharded_bytes += outcome.wire_bytes;
      const std::int64_t tensors = static_cast<std::int64_t>(mlp(32).parameters().size());
      EXPECT_LE(outcome.state_elems, 2 * (model_elems(32) / ranks + tensors));
    }
    for (const Outcome& outcome : whole) whole_bytes += outcome.wire_bytes;
    EXPECT_EQ(elems, 2 * model_elems(32));  // two moments, each somewhere once
    // One agreement of 8 bytes or so a rank and aggregator comes on top.
    const auto n = static_cast<double>(20 * 2 * (ranks - 1) * model_elems(32)) * sizeof(float);
    EXPECT_NEAR(static_cast<double>(sharded_bytes), n, n / 1000 + 4096.0 * ranks);
    EXPECT_NEAR(static_cast<double>(whole_bytes), n, n / 1000 + 4096.0 * ranks);
  }
}

// 1,126,410 parameters: at the end of a step, what lies in whole pages of gradients is given back.
TEST(Sharded, Z4_GradientsAreGivenBack) {
  Setting setting;
  setting.width = 1024;
  setting.bucket_bytes = 1 << 20;
  setting.training = twenty_steps("sgd", 1);
  setting.training.steps = 3;
  setting.stage = 1;
  const std::size_t all = static_cast<std::size_t>(model_elems(1024)) * sizeof(float);
  EXPECT_EQ(train(setting)[0].resident, all);
  setting.stage = 2;
  const std::vector<Outcome> outcomes = train(setting);
  for (const Outcome& outcome : outcomes) {
    EXPECT_LT(outcome.resident, 8U * 8192 + 2 * 10 * 4096);  // ends of tensors, and small ones
  }
  setting.stage = 0;
  EXPECT_EQ(outcomes[0].params, train(setting)[0].params);
}

TEST(Sharded, CompressedShardsKeepReplicasEqual) {
  for (const std::string gradients :
       {"cast:bf16", "qsgd:bits=8,ef=ef14", "absmax:bits=4,ef=ef14"}) {
    for (const std::string parameters : {"none", "cast:bf16"}) {
      Setting setting;
      setting.ranks = 3;
      setting.training = twenty_steps("adamw", 1);
      setting.stage = 2;
      setting.compressor = gradients + ",min_elems=100";
      setting.parameters = parameters;
      const std::vector<Outcome> outcomes = train(setting);  // compares replicas at every step
      setting.stage = 3;
      // Rounded parameters are so from the first pass on at stage 3, from the first update on else.
      const Flat by_layer = train(setting)[0].params;
      EXPECT_EQ(by_layer == outcomes[0].params, parameters == "none") << gradients;
      setting.stage = 2;
      Setting dense = setting;
      dense.compressor = dense.parameters = "none";
      EXPECT_LT(outcomes[0].wire_bytes, train(dense)[0].wire_bytes) << gradients;
      EXPECT_NE(outcomes[0].params, train(dense)[0].params) << gradients;
    }
  }
}

double distance(const Flat& found, const Flat& wanted) {
  double error = 0;
  double length = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    error += std::pow(static_cast<double>(found[i]) - wanted[i], 2);
    length += std::pow(static_cast<double>(wanted[i]), 2);
  }
  return std::sqrt(error / length);
}

// Norms are sums over shards; lamb's are of whole tensors whoever holds them.
TEST(Sharded, NormsAreThoseOfTheWhole) {
  for (const std::string optimizer : {"lamb", "sgd"}) {
    Setting setting;
    setting.ranks = 3;
    setting.training = twenty_steps(optimizer, 1);
    setting.training.lr = 0.01;
    setting.training.clip = 0.5;
    const Flat wanted = train(setting)[0].params;
    setting.stage = 2;
    const Flat found = train(setting)[0].params;
    EXPECT_LE(distance(found, wanted), 1e-6) << optimizer;
  }
}

// Micro-batches that are reduced one by one come to what their sum comes to, but for the order of
// additions; every stage to the same bits. One micro-batch is its own sum.
TEST(Sharded, MicroBatchesReducedOneByOneGiveTheirSum) {
  for (const int accumulate : {1, 4}) {
    Setting setting;
    setting.ranks = 3;
    setting.training = twenty_steps("adamw", accumulate);
    setting.training.clip_worker = accumulate == 4 ? 2 : 0;
    setting.algorithm = "canonical";
    const Flat sum = train(setting)[0].params;
    setting.reduce_each = true;
    const Flat whole = train(setting)[0].params;
    EXPECT_LE(distance(whole, sum), 1e-6);
    EXPECT_EQ(whole == sum, accumulate == 1);
    for (const int stage : {1, 2, 3}) {
      setting.stage = stage;
      EXPECT_EQ(train(setting)[0].params, whole) << stage;
    }
  }
}

// A step that overflows in one of its micro-batches is left out, whatever was reduced before.
TEST(Sharded, OverflowsOfOneMicroBatchLeaveTheStepOut) {
  for (const int stage : {0, 2}) {
    Setting setting;
    setting.stage = stage;
    setting.training = twenty_steps("sgd", 4);
    setting.training.precision = Precision::kF16;
    setting.training.loss_scale = LossScaleOptions::parse("dynamic").value();
    setting.training.loss_scale.initial = 0x1p22;
    setting.training.loss_scale.hysteresis = 1;
    Setting none = setting;
    none.training.steps = 0;
    const Flat start = train(none)[0].params;
    const std::vector<Outcome> sum = train(setting);
    setting.reduce_each = true;
    const std::vector<Outcome> each = train(setting);
    EXPECT_GT(sum[0].skipped, 0);
    EXPECT_EQ(each[0].skipped, sum[0].skipped) << stage;
    // fp16 rounds a mean by 2^-11 of it, here once, there a quarter and the mean of each.
    EXPECT_LE(distance(each[0].params, sum[0].params), 3 * 0x1p-11 * distance(start, sum[0].params))
        << stage;
  }
}

TEST(Sharded, ErrorFeedbackIsRefusedWhereMicroBatchesAreReducedOneByOne) {
  const auto outcomes = on_ranks(2, [](std::unique_ptr<Communicator>& communicator) -> Status {
    for (const int stage : {0, 2}) {
      Setting setting;
      setting.stage = stage;
      setting.reduce_each = true;
      setting.training = twenty_steps("sgd", 4);
      setting.training.rank = communicator->rank();
      setting.training.ranks = 2;
      setting.compressor = "qsgd:bits=8,ef=ef14";
      GW_ASSIGN(Trainer trainer,
                Trainer::create(mlp(32), digits(), setting.training, demands_of(setting)));
      const auto refused = strategy_of(setting, *communicator, trainer);
      EXPECT_FALSE(refused.has_value());
      EXPECT_THAT(refused.error(), fails(kInvalid, "reduce-each", "ef=ef14", "sum-then-reduce"));
    }
    return {};
  });
  for (const Status& status : outcomes) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Sharded, WhatCannotBeShardedIsRefused) {
  const auto outcomes = on_ranks(2, [](std::unique_ptr<Communicator>& communicator) -> Status {
    TrainingOptions own = twenty_steps("sgd", 1);
    own.rank = communicator->rank();
    own.ranks = 2;
    GW_ASSIGN(Trainer trainer, Trainer::create(mlp(32), digits(), own));
    Setting setting;
    setting.stage = 1;
    setting.compressor = "topk:ratio=0.01";
    const auto sparse = strategy_of(setting, *communicator, trainer);
    EXPECT_FALSE(sparse.has_value());
    EXPECT_THAT(sparse.error(), fails(kInvalid, "topk:ratio=0.01", "sharded"));
    setting.compressor = "none";
    setting.stage = 3;
    setting.parameters = "qsgd:bits=8";
    const auto drawn = strategy_of(setting, *communicator, trainer);
    EXPECT_FALSE(drawn.has_value());
    EXPECT_THAT(drawn.error(), fails(kInvalid, "qsgd:bits=8", "none", "cast"));
    setting.stage = 2;
    setting.offload = Offload::kParameters;
    const auto offload = strategy_of(setting, *communicator, trainer);
    EXPECT_FALSE(offload.has_value());
    EXPECT_THAT(offload.error(), fails(kInvalid, "parameters", "stage 2"));
    setting.stage = 5;
    const auto stage = strategy_of(setting, *communicator, trainer);
    EXPECT_THAT(stage.error(), fails(kInvalid, "stage 5", "1", "3"));
    return {};
  });
  for (const Status& status : outcomes) EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace gradwire::testing::sharded_test
