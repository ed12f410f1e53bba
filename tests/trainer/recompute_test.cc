// Layers that compute again instead of being kept: row Z9 of the trainer's acceptance table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/training_problems.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/batch_pass.h"
#include "trainer/data/catalog.h"
#include "trainer/layer_walk.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::recompute_test {
namespace {

const DataSet& grammar() {
  static const DataSet kSet = [] {
    DataOptions options;
    options.text.context = 8;
    return std::move(load_data_set("grammar", {}, options)).value();
  }();
  return kSet;
}

struct Trained {
  std::vector<float> params;
  std::vector<float> buffers;
  double test_loss = 0;
  std::int64_t activations = 0;
};

struct Problem {
  const DataSet* data;
  ModelOptions options;
};

// One with batch norm, one with dropout, and a chain of plain layers.
std::vector<Problem> problems() {
  ModelOptions gpt{"gpt", {}, 16};
  gpt.layers = 4;
  gpt.heads = 2;
  gpt.dropout = 0.2;
  return {
      {&digits(), {"mlp", {32, 24, 16, 12}}}, {&digits(), {"resnet8", {}, 4}}, {&grammar(), gpt}};
}

Model<float> model_of(const Problem& problem) {
  return std::move(
             make_model<float>(problem.options, problem.data->shape(), problem.data->classes()))
      .value();
}

Trained train(const Problem& problem, const std::string& recompute) {
  const Model<float> model = model_of(problem);
  TrainingOptions options;
  options.batch = 24;
  options.accumulate = 2;
  options.steps = 6;
  options.seed = 5;
  options.lr = 0.01;
  options.recompute = recompute;
  options.shuffle = problem.data->is_text() ? Shuffle::kUniform : Shuffle::kEpoch;
  auto trainer = Trainer::create(model, *problem.data, options);
  EXPECT_TRUE(trainer.has_value()) << trainer.error().message();
  SingleProcess alone;
  EXPECT_TRUE(trainer.value().run(alone, nullptr).has_value());
  return {flat(trainer.value().parameters()), flat(trainer.value().buffers()),
          trainer.value().test_loss(),
          options.places.device.use().peak_of(MemoryClass::kActivations)};
}

TEST(Recompute, Z9_TheSameBitsInLessMemory) {
  for (const Problem& problem : problems()) {
    const Trained kept = train(problem, "none");
    for (const std::string policy : {"selective", "full", "sqrt", "3", "100"}) {
      const Trained again = train(problem, policy);
      EXPECT_EQ(again.params, kept.params) << problem.options.name << " " << policy;
      EXPECT_EQ(again.buffers, kept.buffers) << problem.options.name << " " << policy;
      EXPECT_EQ(again.test_loss, kept.test_loss);
      EXPECT_LE(again.activations, kept.activations) << problem.options.name << " " << policy;
    }
  }
}

// What is held is what enters the segments, the output, and the largest inside: here of a decoder
// (by hand in Z8_ActivationsOfADecoderByHand) whose layers are embed, four times attention and mlp,
// norm, head.
TEST(Recompute, Z9_MemoryIsCheckpointsAndOneSegment) {
  constexpr std::int64_t s = 6, h = 8, a = 2, v = 7, rows = 128, blocks = 4;
  ModelOptions options{"gpt", {}, h};
  options.layers = blocks;
  options.heads = a;
  const Model<float> model = std::move(make_model<float>(options, {s, 1, 1}, v)).value();
  const auto held = [&](const std::string& policy) {
    return BatchPass::activation_elems(model, rows, policy).value().own / rows;
  };
  const std::int64_t attention = s * h + 3 * s * h + s * h + 2 * s + 2 * a * s;
  const std::int64_t mlp = s * h + 4 * s * h + 4 * s * h + 2 * s;
  const std::int64_t inputs = s + (2 * blocks + 2) * s * h + s * v;
  EXPECT_EQ(held("none"), inputs + blocks * (attention + mlp) + 2 * s);
  EXPECT_EQ(held("full"), inputs + std::max(attention, mlp));
  // Eleven layers in segments of four: embed a m a | m a m a | m norm head.
  const std::int64_t between = s + 2 * s * h + s * v;
  const std::int64_t largest =
      std::max({3 * s * h + 2 * attention + mlp, 3 * s * h + 2 * mlp + 2 * attention,
                2 * s * h + mlp + 2 * s});
  EXPECT_EQ(held("sqrt"), between + largest);
  // With windows this short an attention is dearer than an mlp for what it keeps.
  EXPECT_EQ(held("selective"), inputs + blocks * attention + std::max(mlp, 2 * s));
}

// Attention costs 4 h^2 + 2 s h products a position and keeps about 5 h, an mlp 8 h^2 and 9 h.
TEST(Recompute, Z9_SelectiveComputesWhatIsCheapest) {
  const auto again = [](std::int64_t s, std::int64_t h) {
    ModelOptions options{"gpt", {}, h};
    options.layers = 2;
    options.heads = 2;
    const Model<float> model = std::move(make_model<float>(options, {s, 1, 1}, 7)).value();
    std::vector<std::string> names;
    const std::vector<Segment> segments = recompute_segments("selective", model).value();
    for (const Segment& segment : segments) {
      EXPECT_EQ(segment.range.end, segment.range.begin + 1);
      if (segment.again) names.push_back(model.layer_name(segment.range.begin));
    }
    return names;
  };
  EXPECT_THAT(again(16, 64),
              ::testing::ElementsAre("block1.attention", "block2.attention", "norm"));
  EXPECT_THAT(again(256, 64), ::testing::ElementsAre("block1.mlp", "block2.mlp", "norm"));
  // Of those that are computed again the last one, the norm, is still there.
  const Problem gpt = problems().back();
  const Model<float> model = model_of(gpt);
  const LayerWalk walk(model, recompute_segments("selective", model).value());
  EXPECT_EQ(walk.computed_again(), 4);
}

// All segments but the last compute again, so that layers are computed forward between once and
// twice; a decoder's dense layers cost 4/3 of a step without.
TEST(Recompute, Z9_SegmentsComputeForwardTwice) {
  const Problem gpt = problems().back();
  const Model<float> model = model_of(gpt);
  const auto again = [&](const std::string& policy) {
    return LayerWalk(model, recompute_segments(policy, model).value()).computed_again();
  };
  EXPECT_EQ(model.layers(), 12U);  // embed, its dropout, 4 x 2, norm, head
  EXPECT_EQ(again("none"), 0);
  EXPECT_EQ(again("100"), 0);
  // Those that keep something inside: every attention and mlp, and the norm.
  EXPECT_EQ(again("full"), 4 * 2 + 1);
  // 0-3, 4-7, 8-11: the last layers of the first two keep something.
  EXPECT_EQ(again("sqrt"), 8);
  std::int64_t once = 0;
  std::int64_t more = 0;
  std::int64_t all = 0;
  const LayerWalk walk(model, recompute_segments("4", model).value());
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    const LayerCost cost = model.layer(layer).cost();
    once += cost.forward_macs;
    all += cost.forward_macs + cost.input_macs + cost.weight_macs;
  }
  for (const LayerTurn& turn : walk.turns(Way::kBack)) {
    if (turn.kind == LayerTurn::Kind::kAgain) more += model.layer(turn.layer).cost().forward_macs;
  }
  EXPECT_LT(more, once);
  const double ratio = static_cast<double>(all + more) / static_cast<double>(all);
  EXPECT_GT(ratio, 1.0);
  EXPECT_LT(ratio, 4.0 / 3.0);
  EXPECT_NEAR(static_cast<double>(all + once) / static_cast<double>(all), 4.0 / 3.0, 0.05);
}

TEST(Recompute, OpeningsOfASegmentComeBeforeItsWayBack) {
  const Model<float>& model = mlp();  // flatten fc1 relu1 fc2 relu2 fc3
  const LayerWalk walk(model, recompute_segments("2", model).value());
  EXPECT_THAT(walk.openings(Way::kForward), ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(walk.openings(Way::kBack), ::testing::ElementsAre(5, 4, 2, 3, 0, 1));
}

struct CountingGate final : LayerGate {
  Status open(std::size_t layer, Way way) override {
    EXPECT_EQ(way, Way::kForward);
    opened.push_back(layer);
    return {};
  }
  Status close(std::size_t layer, Way) override {
    EXPECT_EQ(layer, opened.back());
    return {};
  }
  std::vector<std::size_t> opened;
};

// Who has fewer samples to judge opens layers as often as who has most.
TEST(Recompute, EvaluationsOpenLayersAlikeOnAllRanks) {
  auto pass = std::move(BatchPass::create(mlp(), digits(), 16)).value();
  std::vector<float> params(static_cast<std::size_t>(parameter_elems(mlp().parameters())));
  EXPECT_EQ(pass.passes_of(0), 0);
  EXPECT_EQ(pass.passes_of(16), 1);
  EXPECT_EQ(pass.passes_of(17), 2);
  for (const std::int64_t samples : {0, 20, 33}) {
    CountingGate gate;
    const auto judged = pass.judge(params, 7, 7 + samples, &gate, 3);
    ASSERT_TRUE(judged.has_value());
    EXPECT_EQ(judged.value().labels, samples);
    EXPECT_EQ(gate.opened.size(), 3 * mlp().layers()) << samples;
  }
}

// An evaluation takes as many samples at a time as training has room for, and at most 128; what
// comes of it is the same. Rows of products have the same bits in whole fours of them, else the
// loss differs by rounding, some 1e-7 of a float's sum.
TEST(Recompute, EvaluationsComeToTheSameInAnyRoom) {
  for (const Model<float>* model : {&mlp(), &cnn()}) {
    std::vector<float> params(static_cast<std::size_t>(parameter_elems(model->parameters())));
    init_parameters<float>(model->parameters(), 5, params);
    auto wide = std::move(BatchPass::create(*model, digits(), 1000)).value();
    EXPECT_EQ(wide.passes_of(129), 2);
    const Judgement wanted = wide.judge(params, 0, 360).value();
    EXPECT_EQ(wanted.labels, 360);
    for (const std::int64_t room : {1, 3, 4, 6, 12, 32, 50, 127, 128}) {
      auto pass = std::move(BatchPass::create(*model, digits(), room)).value();
      const Judgement got = pass.judge(params, 0, 360).value();
      EXPECT_EQ(got.labels, wanted.labels) << room;
      EXPECT_EQ(got.correct, wanted.correct) << room;
      EXPECT_NEAR(got.loss, wanted.loss, (room < 4 ? 1e-6 : 1e-12) * wanted.loss) << room;
    }
  }
}

TEST(Recompute, PoliciesAreRead) {
  using Segments = std::vector<Segment>;
  const Model<float>& model = mlp();
  ASSERT_EQ(model.layers(), 6U);
  EXPECT_EQ(recompute_segments("none", model).value(), Segments());
  EXPECT_EQ(recompute_segments("full", model).value().size(), 6U);
  EXPECT_EQ(recompute_segments("full", model).value()[1], (Segment{{1, 2}}));
  EXPECT_EQ(recompute_segments("sqrt", model).value(), (Segments{{{0, 3}}, {{3, 6}}}));
  EXPECT_EQ(recompute_segments("4", model).value(), (Segments{{{0, 4}}, {{4, 6}}}));
  // Plain layers keep nothing inside.
  const Segments selected = recompute_segments("selective", model).value();
  for (const Segment& segment : selected) {
    EXPECT_FALSE(segment.again);
  }
  for (const std::string wrong : {"", "0", "-1", "half", "2x"}) {
    EXPECT_FALSE(check_recompute(wrong).ok()) << wrong;
    EXPECT_FALSE(recompute_segments(wrong, model).has_value()) << wrong;
  }
}

}  // namespace
}  // namespace gradwire::recompute_test
