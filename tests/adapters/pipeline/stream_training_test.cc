// Stages without a flush against a serial replay of what they say they compute, bit for bit (rows
// PP8 and PP9 of the trainer's acceptance table).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/adapters/pipeline/stream_cases.h"
#include "tests/support/fails.h"

namespace gradwire::testing::stream_training_test {
namespace {

using Versions = StreamRule::Versions;

// Each with one of the optimizers; streams_matrix.cc has all.
TEST(StagesWithoutAFlush, PP8_PP9_AreTheirSerialReplay) {
  for (const Trainee& one : trainees()) {
    for (const int ranks : {2, 3, 4}) {
      const std::string optimizer = ranks % 2 == 0 ? "sgd" : "adamw";
      for (const StreamRule& rule : rules(ranks)) {
        expect_replayed(training_of(one, optimizer, 1, rule), rule, one.name + " " + optimizer);
      }
    }
  }
}

TEST(StagesWithoutAFlush, ReplicasAndTheirShards) {
  for (const Trainee& one : trainees()) {
    for (const int zero : {0, 1}) {
      for (const StreamRule& rule : rules(2)) {
        MeshTraining plain = training_of(one, "adamw", 2, rule);
        plain.training.zero = zero;
        expect_replayed(plain, rule, one.name + " zero " + std::to_string(zero));
      }
    }
  }
}

TEST(StagesWithoutAFlush, InSixteenBitsCompressedAndComputedAgain) {
  for (const StreamRule& rule : rules(3)) {
    MeshTraining plain = training_of(trainees()[1], "adamw", 2, rule);
    plain.training.precision = Precision::kBF16;
    expect_replayed(plain, rule, "bf16");
    plain.training.precision = Precision::kF32;
    plain.training.recompute = "full";
    expect_replayed(plain, rule, "recompute");
    plain.training.recompute = "none";
    plain.training.compressor = "topk:ratio=0.1,ef=ef14,min_elems=0,dense_1d=false";
    expect_replayed(plain, rule, "top-k");
  }
}

TEST(StagesWithoutAFlush, WhoseRanksShareTensors) {
  const ModelOptions options{"mlp", {24, 20, 24, 18}};
  const Model<float> whole = model_for(options, digits_data());
  for (const StreamRule& rule : {rules(2)[0], rules(2)[2]}) {
    const MeshTraining plain = training_of({"mlp", &whole, &digits_data()}, "sgd", 1, rule);
    MeshTraining replay = plain;
    replay.source = StreamReplay::choice(whole, rule, kDrains);
    MeshTraining stages = plain;
    stages.stages = 2;
    stages.stream = rule;
    stages.shared = parts_of(options, digits_data(), 2);
    const MeshEnded ended = run_mesh(stages);
    const MeshEnded alone = run_mesh(replay);
    ASSERT_TRUE(all_ok(ended) && all_ok(alone));
    ASSERT_EQ(ended.losses.size(), alone.losses.size());
    for (std::size_t step = 0; step < alone.losses.size(); ++step) {
      EXPECT_NEAR(ended.losses[step], alone.losses[step], 1e-4) << name_of(rule);
    }
  }
}

// One stage: nothing is stale, or all by one step.
TEST(StagesWithoutAFlush, OnOneRank) {
  for (const Trainee& one : trainees()) {
    const StreamRule newest{.ranks = 1};
    MeshTraining plain = training_of(one, "sgd", 1, newest);
    MeshTraining stages = plain;
    stages.stream = newest;
    expect_equal(run_mesh(stages), run_mesh(plain), one.name);
    const StreamRule delayed{.ranks = 1, .micro_batches = 2, .versions = Versions::kDelayed};
    expect_replayed(training_of(one, "sgd", 1, delayed), delayed, one.name);
  }
}

// What goes on from a checkpoint is the run that drained there; other stages go on from it, too.
TEST(StagesWithoutAFlush, CheckpointsAreOfDrainedStages) {
  for (const StreamRule& rule : rules(3)) {
    MeshTraining stages = training_of(trainees()[0], "adamw", 1, rule);
    stages.stages = rule.ranks;
    stages.stream = rule;
    const TemporaryFolder folder;
    const MeshEnded whole = run_mesh(stages, {.save_to = folder.path()});
    expect_equal(run_mesh(stages, {.resume_from = folder.path()}), whole, name_of(rule));
    MeshTraining other = stages;
    other.stream.reset();
    EXPECT_TRUE(all_ok(run_mesh(other, {.resume_from = folder.path()}))) << name_of(rule);
  }
}

// More micro-batches than their numbers count to.
TEST(StagesWithoutAFlush, NumbersWrap) {
  const Model<float> small = model_for({"mlp", {3}}, digits_data());
  const Trainee one{"small", &small, &digits_data()};
  const StreamRule rule{.ranks = 2};
  MeshTraining stages = training_of(one, "sgd", 1, rule);
  stages.training.batch = 1;
  stages.training.steps = 66'000;
  stages.training.lr = 1e-4;
  stages.drain_every = 0;
  MeshTraining replay = stages;
  replay.source = StreamReplay::choice(small, rule, 66'000);
  stages.stages = 2;
  stages.stream = rule;
  expect_equal(run_mesh(stages), run_mesh(replay), "66,000");
}

TEST(StagesWithoutAFlush, WhatIsNotServedIsRefused) {
  const StreamRule rule{.ranks = 2};
  EXPECT_THAT(plan_stream(tied_gpt(), rule, 0).error(),
              fails(Code::kUnsupported, "embed.token", "not tied"));
  EXPECT_THAT(plan_stream(deep_mlp(), {.ranks = 2, .micro_batches = 2}, 0).error(),
              fails(Code::kInvalidArgument, "pipedream of 2 micro-batches", "expected 1"));
  EXPECT_THAT(
      plan_stream(deep_mlp(), {.ranks = 3, .micro_batches = 2, .versions = Versions::kDelayed}, 0)
          .error(),
      fails(Code::kInvalidArgument, "2bw of 2 micro-batches", "at least 3"));
  const auto refused = [&](auto change) {
    MeshTraining stages = training_of(trainees()[0], "sgd", 1, rule);
    stages.stages = 2;
    stages.stream = rule;
    change(stages.training);
    return run_mesh(stages).statuses.front();
  };
  EXPECT_THAT(refused([](Training& t) { t.optimizer = "lamb"; }),
              fails(Code::kUnsupported, "lamb", "without a flush"));
  EXPECT_THAT(refused([](Training& t) {
                t.precision = Precision::kF16;
                t.loss_scale = LossScaleOptions::parse("256").value();
              }),
              fails(Code::kUnsupported, "loss scale", "without a flush"));
}

}  // namespace
}  // namespace gradwire::testing::stream_training_test
