// Pipelines in both directions: two ranks hold each stage, and train as two replicas do that hold
// whole models (row PP11 of the trainer's acceptance table).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/adapters/pipeline/both_ways_replay.h"
#include "tests/adapters/pipeline/mesh_runs.h"
#include "tests/adapters/pipeline/stage_models.h"
#include "tests/support/fails.h"

namespace gradwire::testing::both_ways_test {
namespace {

const PipelineSpec kBothWays{.kind = PipelineKind::kChimera};
const PipelineSpec kDoubled{.kind = PipelineKind::kChimera, .doubling = true};

struct Case {
  std::string name;
  const Model<float>* model;
  const DataSet* data;
  std::vector<int> ranks;
};

std::vector<Case> cases() {
  return {{"mlp", &deep_mlp(), &digits_data(), {2, 4, 6}},
          {"resnet8", &small_resnet(), &digits_data(), {2}},
          {"gpt", &small_gpt(), &grammar_text(), {2, 4}},
          {"tied gpt", &tied_gpt(), &grammar_text(), {2, 4}}};
}

// `replicas`: two for each pipeline; so many micro-batches each.
MeshTraining training_of(const Case& one, const std::string& optimizer, int replicas, int micros) {
  MeshTraining mesh{.training = {.model = one.model,
                                 .ranks = replicas,
                                 .accumulate = micros,
                                 .batch = std::int64_t{4} * micros * replicas,
                                 .lr = optimizer == "adamw" ? 0.003 : 0.05,
                                 .steps = 3,
                                 .optimizer = optimizer},
                    .data = one.data};
  return mesh;
}

MeshTraining both_ways(MeshTraining mesh, int ranks, const PipelineSpec& spec = kBothWays) {
  mesh.stages = ranks;
  mesh.spec = spec;
  return mesh;
}

void expect_close(const MeshEnded& ended, const MeshEnded& whole, const std::string& where) {
  SCOPED_TRACE(where);
  ASSERT_TRUE(all_ok(ended));
  ASSERT_TRUE(all_ok(whole));
  for (const auto& [name, values] : whole.tensors) {
    ASSERT_TRUE(ended.tensors.contains(name)) << name;
    const std::vector<float>& seen = ended.tensors.at(name);
    ASSERT_EQ(seen.size(), values.size()) << name;
    float most = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(seen[i] - values[i]));
    }
    EXPECT_LE(most, 1e-5F) << name;
  }
}

// Where ends are tied each copy adds up the uses of other micro-batches: another order of one sum.
void expect_as(const Case& one, const MeshEnded& ended, const MeshEnded& whole,
               const std::string& where) {
  if (one.model != &tied_gpt()) return expect_equal(ended, whole, where);
  SCOPED_TRACE(where);
  ASSERT_TRUE(all_ok(ended) && all_ok(whole));
  ASSERT_EQ(ended.losses.size(), whole.losses.size());
  for (std::size_t step = 0; step < whole.losses.size(); ++step) {
    EXPECT_NEAR(ended.losses[step], whole.losses[step], 1e-5) << step;
  }
}

TEST(BothWays, PP11_HaveTheBitsOfTwoReplicas) {
  for (const Case& one : cases()) {
    for (const char* optimizer : {"sgd", "adamw"}) {
      for (const int micros : {1, 2, 3}) {
        const MeshTraining plain = training_of(one, optimizer, 2, micros);
        const MeshEnded whole = run_mesh(plain);
        for (const int ranks : one.ranks) {
          expect_as(one, run_mesh(both_ways(plain, ranks)), whole,
                    one.name + " " + optimizer + " p=" + std::to_string(ranks) +
                        " m=" + std::to_string(2 * micros));
        }
      }
    }
  }
}

TEST(BothWays, PP11_DoubledHaveTheBitsOfTwoReplicas) {
  for (const Case& one : cases()) {
    for (const int ranks : one.ranks) {
      const MeshTraining plain = training_of(one, "adamw", 2, ranks);
      expect_as(one, run_mesh(both_ways(plain, ranks, kDoubled)), run_mesh(plain),
                one.name + " p=" + std::to_string(ranks));
    }
  }
}

// The bits of parameters. Losses are means of means, in double.
void expect_equal_but_losses(const MeshEnded& ended, MeshEnded alone, const std::string& where) {
  ASSERT_EQ(ended.losses.size(), alone.losses.size()) << where;
  for (std::size_t step = 0; step < alone.losses.size(); ++step) {
    EXPECT_NEAR(ended.losses[step], alone.losses[step], 1e-13) << where << " step " << step;
  }
  alone.losses = ended.losses;
  expect_equal(ended, alone, where);
}

// Of several pipelines: one rank that adds up in the order of each stage's copies.
TEST(BothWays, PP11_SeveralHaveTheBitsOfOneRankThatAddsUpInTheirOrder) {
  for (const Case& one : cases()) {
    if (one.name == "resnet8" || one.name == "tied gpt") continue;
    for (const char* optimizer : {"sgd", "adamw"}) {
      for (const int pipelines : {2, 3}) {
        for (const int micros : {1, 2}) {
          for (const int ranks : {2, 4}) {
            const MeshTraining plain = training_of(one, optimizer, 2 * pipelines, micros);
            MeshTraining alone = plain;
            alone.training.ranks = 1;
            alone.training.accumulate = 2 * pipelines;
            alone.source = BothWaysReplay::choice(*one.model, ranks, micros);
            expect_equal_but_losses(run_mesh(both_ways(plain, ranks)), run_mesh(alone),
                                    one.name + " " + optimizer + " p=" + std::to_string(ranks) +
                                        " dp=" + std::to_string(pipelines) +
                                        " m=" + std::to_string(2 * micros));
          }
        }
      }
    }
  }
}

// Sums of four are in another order on one half of the stages.
TEST(BothWays, InTwoPipelinesAreFourReplicas) {
  for (const int zero : {0, 1}) {
    for (const Case& one : cases()) {
      MeshTraining plain = training_of(one, "sgd", 4, 2);
      plain.training.zero = zero;
      expect_close(run_mesh(both_ways(plain, 2)), run_mesh(plain),
                   one.name + " zero " + std::to_string(zero));
    }
  }
}

TEST(BothWays, InSixteenBitsAndSharded) {
  for (const Case& one : cases()) {
    if (one.model == &tied_gpt()) continue;  // in 16 bits another order is another step
    for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
      for (const int zero : {0, 1}) {
        MeshTraining plain = training_of(one, "adamw", 2, 2);
        plain.training.precision = precision;
        plain.training.zero = zero;
        if (precision == Precision::kF16) {
          plain.training.loss_scale = LossScaleOptions::parse("1024").value();
        }
        expect_equal(
            run_mesh(both_ways(plain, 2)), run_mesh(plain),
            one.name + " " + std::string(to_string(precision)) + " zero " + std::to_string(zero));
      }
    }
  }
}

TEST(BothWays, Recompute) {
  for (const char* recompute : {"full", "2"}) {
    MeshTraining plain = training_of(cases()[2], "sgd", 2, 2);
    plain.training.recompute = recompute;
    expect_equal(run_mesh(both_ways(plain, 4)), run_mesh(plain), recompute);
  }
}

TEST(BothWays, WhoseRanksShareTensors) {
  const ModelOptions options{"mlp", {24, 20, 24, 18}};
  const Model<float> whole = model_for(options, digits_data());
  const MeshTraining plain = training_of({"mlp", &whole, &digits_data(), {2}}, "sgd", 2, 2);
  MeshTraining both = both_ways(plain, 2);
  both.shared = parts_of(options, digits_data(), 2);
  expect_close(run_mesh(both), run_mesh(plain), "tp=2");
}

// Replicas are compared before each step, and at the end all their bits by run_mesh().
TEST(BothWays, PP11_CopiesStayEqualUnderEveryCompressor) {
  for (const char* compressor :
       {"none", "qsgd:bits=4,ef=ef14,min_elems=0,dense_1d=false",
        "signsgd:ef=ef14,min_elems=0,dense_1d=false",
        "topk:ratio=0.1,ef=ef14,min_elems=0,dense_1d=false", "powersgd:rank=2,ef=ef14,min_elems=0",
        "absmax:bits=4,ef=ef21,min_elems=0,dense_1d=false"}) {
    for (const int pipelines : {1, 2}) {
      MeshTraining mesh = training_of(cases().front(), "sgd", 2 * pipelines, 2);
      mesh.training.compressor = compressor;
      mesh.training.lr = 0.01;
      mesh.training.steps = 50;
      const MeshEnded ended = run_mesh(both_ways(mesh, 4));
      EXPECT_TRUE(all_ok(ended)) << compressor << ", " << pipelines << " pipelines";
      EXPECT_EQ(ended.losses.size(), 50U);
    }
  }
}

// With whole models, and in stages of one direction.
TEST(BothWays, GoOnFromCheckpointsOfOthers) {
  for (const int zero : {0, 1}) {
    MeshTraining plain = training_of(cases()[2], "adamw", 2, 2);
    plain.training.steps = 12;
    plain.training.zero = zero;
    const TemporaryFolder folder;
    const TemporaryFolder back;
    const MeshEnded whole = run_mesh(plain, {.save_to = folder.path()});
    expect_equal(run_mesh(both_ways(plain, 4), {.resume_from = folder.path()}), whole, "from 1");
    expect_equal(run_mesh(both_ways(plain, 2), {.save_to = back.path()}), whole, "to 2");
    expect_equal(run_mesh(both_ways(plain, 4), {.resume_from = back.path()}), whole, "2 to 4");
    MeshTraining stages = plain;
    stages.stages = 2;
    expect_equal(run_mesh(stages, {.resume_from = back.path()}), whole, "to 1f1b");
  }
}

TEST(BothWays, WhatIsNotServedIsRefused) {
  const PipelineSchedule schedule = generate_pipeline(kBothWays, 2, 2).value();
  EXPECT_THAT(plan_stages(deep_mlp(), schedule, 0, {}, true).error(),
              fails(Code::kUnsupported, "gathered", "two pipes"));
  PipelineSchedule crossed = schedule;
  for (auto& ops : crossed.ranks) {
    for (PipelineOp& op : ops) op.micro = static_cast<std::uint16_t>(1 - op.micro);
  }
  EXPECT_THAT(plan_stages(deep_mlp(), crossed, 0, {}).error(),
              fails(Code::kUnsupported, "2 pipes", "half of the micro-batches"));
}

}  // namespace
}  // namespace gradwire::testing::both_ways_test
