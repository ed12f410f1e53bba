// Any schedule on any number of ranks has the bits of one rank with the same micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/adapters/pipeline/stage_models.h"
#include "tests/support/fails.h"
#include "tests/support/short_run.h"
#include "trainer/pipeline/lower.h"

namespace gradwire::testing::stages_test {
namespace {

// Every schedule with every number of ranks, against one run alone for each number of
// micro-batches; in a short run a fifth of them, by turns.
void expect_bits(const Model<float>& model, const DataSet& data, const std::string& optimizer,
                 const std::vector<int>& ranks, const std::vector<int>& micro_batches) {
  ShortRun turns(5, optimizer == "adamw" ? 2 : 0);
  for (const int m : micro_batches) {
    PipelineRun run = run_of(model, data, m, optimizer);
    const Trained alone = train_on_one_rank(run);
    for (const PipelineSpec& spec : every_spec()) {
      for (const int p : ranks) {
        if (!turns.takes()) continue;
        run.spec = spec;
        run.ranks = p;
        expect_same(train_pipeline(run), alone,
                    spec.text() + " p=" + std::to_string(p) + " m=" + std::to_string(m));
      }
    }
  }
}

// Layers on p ranks, and the whole batch goes through all of them at once.
TEST(StagesHaveTheBitsOfOneRank, M1_OneMicroBatch) {
  expect_bits(deep_mlp(), digits_data(), "sgd", {1, 2, 3, 4}, {1});
}

TEST(StagesHaveTheBitsOfOneRank, DeepMlpSgd) {
  expect_bits(deep_mlp(), digits_data(), "sgd", {1, 2, 3, 4}, {4, 6, 8});
}

TEST(StagesHaveTheBitsOfOneRank, DeepMlpAdamW) {
  expect_bits(deep_mlp(), digits_data(), "adamw", {1, 2, 3, 4}, {1, 4, 6, 8});
}

TEST(StagesHaveTheBitsOfOneRank, OrderedLinksAndNoOverlap) {
  PipelineRun run = run_of(deep_mlp(), digits_data(), 4, "sgd");
  const Trained alone = train_on_one_rank(run);
  run.ranks = 3;
  for (const PipelineSpec& spec : every_spec()) {
    for (const PipelineLinks links : {PipelineLinks::kTagged, PipelineLinks::kOrdered}) {
      for (const bool overlap : {true, false}) {
        run.spec = spec;
        // Messages of these links have to be received to be sent.
        if (links == PipelineLinks::kTagged && !overlap) continue;
        run.links = links;
        run.overlap = overlap;
        expect_same(train_pipeline(run), alone,
                    spec.text() + " " + std::string(to_string(links)) +
                        (overlap ? " with overlap" : " without overlap"));
      }
    }
  }
}

TEST(StagesHaveTheBitsOfOneRank, ResNet) {
  expect_bits(small_resnet(), digits_data(), "sgd", {1, 2, 3}, {1, 4, 6});
  expect_bits(small_resnet(), digits_data(), "adamw", {2}, {8});
}

TEST(StagesHaveTheBitsOfOneRank, Gpt) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    expect_bits(small_gpt(), grammar_text(), optimizer, {2, 4}, {1, 4, 6});
  }
}

TEST(StagesHaveTheBitsOfOneRank, TiedGpt) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    expect_bits(tied_gpt(), grammar_text(), optimizer, {2, 4}, {1, 6});  // stages_matrix has all
  }
}

// In 16 bits sums of both ends are added in the form that gradients are kept in.
TEST(StagesHaveTheBitsOfOneRank, TiedGptInSixteenBits) {
  for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
    for (const int m : {1, 4}) {
      PipelineRun run = run_of(tied_gpt(), grammar_text(), m, "adamw");
      run.options.precision = precision;
      if (precision == Precision::kF16) run.options.loss_scale.initial = 1024;
      const Trained alone = train_on_one_rank(run);
      run.ranks = 3;
      for (const PipelineSpec& spec : every_spec()) {
        run.spec = spec;
        expect_same(train_pipeline(run), alone, spec.text() + " m=" + std::to_string(m));
      }
    }
  }
}

// Layers that are computed again, within stages.
TEST(StagesHaveTheBitsOfOneRank, Recompute) {
  for (const char* recompute : {"full", "2", "selective"}) {
    PipelineRun run = run_of(small_gpt(), grammar_text(), 4, "sgd");
    const Trained alone = train_on_one_rank(run);
    run.options.recompute = recompute;
    run.ranks = 2;
    for (const PipelineSpec& spec : every_spec()) {
      if (splits_backward(spec.kind)) continue;
      run.spec = spec;
      expect_same(train_pipeline(run), alone, spec.text() + " recompute " + recompute);
    }
  }
}

// A step's norm is that of all stages, whose sum of squares is added up in other groups.
TEST(Stages, ClipByTheNormOfAllStages) {
  PipelineRun run = run_of(deep_mlp(), digits_data(), 4, "sgd");
  run.options.clip = 0.05;
  const Trained alone = train_on_one_rank(run);
  run.ranks = 3;
  const Trained stages = train_pipeline(run);
  ASSERT_EQ(stages.tensors.size(), alone.tensors.size());
  for (const auto& [name, values] : alone.tensors) {
    const std::vector<float>& own = stages.tensors.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(own[i], values[i], 1e-6F * std::max(1.0F, std::abs(values[i]))) << name;
    }
  }
}

// What is not served is refused by name, before anything is sent.
TEST(Stages, RefuseWhatTheyDoNotServe) {
  const auto refused = [](const Model<float>& model, const PipelineSpec& spec, int ranks) {
    const PipelineSchedule schedule = generate_pipeline(spec, ranks, 4).value();
    return plan_stages(model, schedule, 0, {}).error();
  };
  // 6 layers of it have parameters.
  EXPECT_THAT(refused(small_resnet(), {.kind = PipelineKind::kInterleaved, .chunks = 2}, 4),
              fails(Code::kInvalidArgument, "8 stages", "6"));
  // The embedding is on rank 1, the head on rank 0.
  PipelineSchedule turned = generate_pipeline({.kind = PipelineKind::kGpipe}, 2, 1).value();
  turned.rank_of = {{1, 0}};
  std::ranges::reverse(turned.ranks);
  EXPECT_THAT(plan_stages(tied_gpt(), turned, 0, {}).error(),
              fails(Code::kUnsupported, "head", "embed.token", "rank 0"));
  PipelineSchedule schedule = generate_pipeline({.kind = PipelineKind::kGpipe}, 2, 1).value();
  schedule = with_step_ops(schedule, {.reduce = true});
  EXPECT_THAT(plan_stages(deep_mlp(), schedule, 0, {}).error(), fails(Code::kUnsupported, "0RG"));
  PipelineRun run = run_of(deep_mlp(), digits_data(), 4, "sgd");
  run.options.recompute = "full";
  const StagePlan plan =
      plan_stages(deep_mlp(),
                  generate_pipeline({.kind = PipelineKind::kZeroBubbleH1}, 1, 4).value(), 0, {})
          .value();
  const Model<float> part = deep_mlp().part(plan.layers());
  EXPECT_THAT(
      StageWork::create(part, digits_data(), plan, {.max_rows = 4, .recompute = "full"}).error(),
      fails(Code::kUnsupported, "full"));
}

}  // namespace
}  // namespace gradwire::testing::stages_test
