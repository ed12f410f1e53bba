// ZeRO: rows Z3, Z4 and Z7 of the trainer's acceptance table, and what shards promise besides.
#include "adapters/trainer/sharded/sharded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "base/elements.h"
#include "device/pages.h"
#include "tests/support/aggregate_job.h"
#include "tests/trainer/training_problems.h"
#include "trainer/models.h"
#include "trainer/training.h"

namespace gradwire::testing {
namespace {

using ::testing::HasSubstr;

const Model<float>& mlp(std::int64_t width) {
  static const auto kSmall =
      std::move(make_model<float>({"mlp", {32, 16}}, digits().shape(), 10)).value();
  static const auto kLarge =
      std::move(make_model<float>({"mlp", {1024, 1024}}, digits().shape(), 10)).value();
  return width > 100 ? kLarge : kSmall;
}

struct Outcome {
  Status status;
  Flat params;
  std::uint64_t wire_bytes = 0;
  std::int64_t state_elems = 0;  // of the optimizer
  std::size_t resident = 0;      // of the gradients, at the end of a step
};

struct Setting {
  int stage = 0;
  int ranks = 2;
  TrainingOptions training;
  std::string compressor = "none";
  std::string parameters = "none";
  std::string algorithm = "ring";
  std::int64_t width = 32;
  std::int64_t bucket_bytes = 4000;
};

TrainingOptions twenty_steps(const std::string& optimizer, int accumulate) {
  TrainingOptions options;
  options.batch = 48;
  options.steps = 20;
  options.seed = 3;
  options.lr = optimizer == "adamw" ? 1e-3 : 0.05;
  options.optimizer.name = optimizer;
  options.accumulate = accumulate;
  return options;
}

ShardedOptions sharded_options(const Setting& setting) {
  ShardedOptions options;
  options.stage = setting.stage;
  options.parallel.aggregator.compressor = setting.compressor;
  options.parallel.aggregator.algorithm = setting.algorithm;
  options.parallel.aggregator.bucket_bytes = setting.bucket_bytes;
  options.parallel.check_every = 1;
  options.parameters = setting.parameters;
  options.optimizer = setting.training.optimizer;
  return options;
}

Result<std::unique_ptr<ReplicaHook>> hook_of(const Setting& setting, Communicator& communicator,
                                             Trainer& trainer) {
  const ShardedOptions options = sharded_options(setting);
  const auto gradients = trainer.gradients();
  if (setting.stage == 0) {
    GW_ASSIGN(auto hook,
              DataParallelHook::create(communicator, Registry::builtin(), options.parallel,
                                       trainer.parameters(), gradients));
    return std::unique_ptr<ReplicaHook>(std::move(hook));
  }
  GW_ASSIGN(auto hook,
            ShardedHook::create(communicator, Registry::builtin(), options,
                                mlp(setting.width).parameters(), trainer.parameters(), gradients));
  return std::unique_ptr<ReplicaHook>(std::move(hook));
}

Status run_rank(const Setting& setting, Communicator& communicator, Outcome& outcome) {
  TrainingOptions own = setting.training;
  own.rank = communicator.rank();
  own.ranks = setting.ranks;
  if (setting.stage > 0) {
    own.optimizer.name = "hook";
    own.hook_clips = true;
  }
  GW_ASSIGN(Trainer trainer, Trainer::create(mlp(setting.width), digits(), own));
  GW_ASSIGN(auto hook, hook_of(setting, communicator, trainer));
  GW_TRY(hook->start(ReplicaStart::kCompare));
  const auto on_step = [&](const StepReport&) -> Status {
    outcome.resident = 0;
    for (const NamedTensor& named : trainer.gradients()) {
      outcome.resident += resident_bytes(ConstTensorView(named.tensor).bytes());
    }
    return {};
  };
  const auto accuracy = trainer.run(*hook, on_step);
  outcome.params.clear();
  for (const NamedTensor& named : trainer.parameters()) {
    const auto values = elements<float>(ConstTensorView(named.tensor));
    outcome.params.insert(outcome.params.end(), values.begin(), values.end());
  }
  outcome.wire_bytes = hook->stats().wire_bytes;
  if (hook->optimizer() != nullptr) {
    for (const NamedTensor& named : hook->optimizer()->state()) {
      const bool of_shards = named.name.ends_with(".shard") || named.name == "sharded.steps";
      const bool of_exchanges = named.name.find('/') != std::string::npos;
      if (!of_shards && !of_exchanges) outcome.state_elems += named.tensor.elems();
    }
  }
  return accuracy.error();
}

std::vector<Outcome> train(const Setting& setting) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(setting.ranks));
  const auto ended =
      on_ranks(setting.ranks, [&](std::unique_ptr<Communicator>& communicator) -> Status {
        return run_rank(setting, *communicator,
                        outcomes[static_cast<std::size_t>(communicator->rank())]);
      });
  for (std::size_t r = 0; r < ended.size(); ++r) {
    outcomes[r].status = ended[r];
    EXPECT_TRUE(ended[r].ok()) << ended[r].message();
    EXPECT_EQ(outcomes[r].params, outcomes[0].params) << "rank " << r;
  }
  return outcomes;
}

std::int64_t model_elems(std::int64_t width) { return parameter_elems(mlp(width).parameters()); }

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
        for (const int stage : {1, 2}) {
          setting.stage = stage;
          EXPECT_EQ(train(setting)[0].params, wanted)
              << optimizer << ", stage " << stage << ", " << ranks << " ranks";
        }
      }
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
      Setting dense = setting;
      dense.compressor = dense.parameters = "none";
      EXPECT_LT(outcomes[0].wire_bytes, train(dense)[0].wire_bytes) << gradients;
      EXPECT_NE(outcomes[0].params, train(dense)[0].params) << gradients;
    }
  }
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
    double error = 0;
    double length = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      error += std::pow(static_cast<double>(found[i]) - wanted[i], 2);
      length += std::pow(static_cast<double>(wanted[i]), 2);
    }
    EXPECT_LE(std::sqrt(error / length), 1e-6) << optimizer;
  }
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
    const auto sparse = hook_of(setting, *communicator, trainer);
    EXPECT_FALSE(sparse.has_value());
    EXPECT_THAT(std::string(sparse.error().message()), HasSubstr("sharded gradients"));
    setting.compressor = "none";
    setting.stage = 5;
    const auto stage = hook_of(setting, *communicator, trainer);
    EXPECT_THAT(std::string(stage.error().message()), HasSubstr("stage 5 (1 or 2 wanted)"));
    return {};
  });
  for (const Status& status : outcomes) EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace gradwire::testing
