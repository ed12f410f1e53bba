// What a pass through a model promises: sums over samples, halves of backward, several
// micro-batches in flight, the same bits again, statistics once per step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/trainer/layer_run.h"
#include "trainer/layers/batch_norm2d.h"
#include "trainer/layers/dropout.h"
#include "trainer/models.h"

namespace gradwire::passes_test {
namespace {

template <typename T>
struct Case {
  Model<T> model;
  std::vector<T> params;
  std::vector<T> buffers;
  std::vector<T> x;  // of `rows` samples
  std::vector<std::uint32_t> labels;
  std::int64_t rows;
};

template <typename T>
Case<T> make_case(const ModelOptions& options, SampleShape input, std::int64_t rows) {
  constexpr std::int64_t kClasses = 7;
  Case<T> made{std::move(make_model<T>(options, input, kClasses)).value(), {}, {}, {}, {}, rows};
  made.params.resize(static_cast<std::size_t>(parameter_elems(made.model.parameters())));
  init_parameters<T>(made.model.parameters(), 3, made.params);
  made.buffers.resize(static_cast<std::size_t>(parameter_elems(made.model.buffers())));
  init_parameters<T>(made.model.buffers(), 3, made.buffers);
  made.x = draws<T>(rows * input.elems(), 21);
  if (options.name == "gpt") {
    for (T& id : made.x) id = std::floor(std::min(std::abs(id) * T(3), T(6)));
  }
  const std::int64_t labels = rows * made.model.output().elems() / kClasses;
  for (std::int64_t i = 0; i < labels; ++i) {
    made.labels.push_back(static_cast<std::uint32_t>((i * i + 2) % kClasses));
  }
  return made;
}

// The models with every kind of layer.
struct Kind {
  ModelOptions options;
  SampleShape input;
};
std::vector<Kind> kinds() {
  ModelOptions gpt{"gpt", {}, 8};
  gpt.dropout = 0.3;
  ModelOptions tied = gpt;
  tied.tied = true;
  return {
      {{"mlp", {9}}, {1, 4, 4}},         {{"cnn", {}}, {2, 8, 8}}, {{"resnet8", {}, 4}, {3, 8, 8}},
      {{"alexnet", {}, 8}, {1, 16, 16}}, {gpt, {6, 1, 1}},         {tied, {6, 1, 1}}};
}

constexpr PassContext kContext{PassMode::kTrain, 1, 2, 40};

Status ignore(int /*index*/) { return {}; }

// Loss and gradients of samples [first, first + count) of a case.
template <typename T>
std::vector<T> gradients(const Case<T>& c, Activations<T>& memory, std::int64_t first,
                         std::int64_t count, PassContext context = kContext) {
  const std::int64_t width = c.model.input().elems();
  const auto per_sample = static_cast<std::int64_t>(c.labels.size()) / c.rows;
  std::copy_n(c.x.begin() + first * width, count * width, memory.values(0, count).begin());
  context.first_sample += first;
  const ModelPass<T> pass{c.params, count, &memory, context};
  const std::span<const std::uint32_t> labels(c.labels.data() + first * per_sample,
                                              static_cast<std::size_t>(count * per_sample));
  mean_loss<T>(c.model.loss(), c.model.forward(pass), labels,
               memory.deltas(c.model.last_level(), count));
  std::vector<T> grads(static_cast<std::size_t>(c.model.gradients().elems()), T(777));
  EXPECT_TRUE(c.model.backward(pass, grads, ignore).ok());
  return grads;
}

// Batch norm couples samples, so the residual networks are left out: PP16 is theirs.
TEST(Passes, T2_SumOfPerSampleGradientsIsTheBatchGradient) {
  for (const Kind& kind : kinds()) {
    if (kind.options.name == "resnet8") continue;
    const Case<float> c = make_case<float>(kind.options, kind.input, 6);
    auto memory = std::move(c.model.make_activations(6)).value();
    const std::vector<float> batch = gradients(c, memory, 0, 6);
    std::vector<double> sum(batch.size());
    for (std::int64_t sample = 0; sample < 6; ++sample) {
      const std::vector<float> one = gradients(c, memory, sample, 1);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i] / 6.0;
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ASSERT_NEAR(batch[i], sum[i], 1e-6) << kind.options.name << " element " << i;
    }
  }
}

TEST(Passes, HalvesOfBackwardMakeTheWhole) {
  for (const Kind& kind : kinds()) {
    const Case<float> c = make_case<float>(kind.options, kind.input, 4);
    auto whole = std::move(c.model.make_activations(4)).value();
    const std::vector<float> expected = gradients(c, whole, 0, 4);
    auto memory = std::move(c.model.make_activations(4, DeltaRoom::kEveryLevel)).value();
    std::copy(c.x.begin(), c.x.end(), memory.values(0, 4).begin());
    const ModelPass<float> pass{c.params, 4, &memory, kContext};
    // In two ranges of layers, as two stages would: inputs of both, then weights of both.
    const LayerRange low{0, c.model.layers() / 2};
    const LayerRange high{low.end, c.model.layers()};
    c.model.forward(pass, low);
    c.model.forward(pass, high);
    mean_loss<float>(c.model.loss(), memory.values(c.model.last_level(), 4), c.labels,
                     memory.deltas(c.model.last_level(), 4));
    c.model.backward_input(pass, high);
    c.model.backward_input(pass, low);
    std::vector<float> grads(expected.size(), 777.0f);
    ASSERT_TRUE(c.model.backward_params(pass, high, grads, ignore).ok());
    ASSERT_TRUE(c.model.backward_params(pass, low, grads, ignore).ok());
    EXPECT_EQ(grads, expected) << kind.options.name;
  }
}

TEST(Passes, SeveralMicroBatchesInFlight) {
  for (const Kind& kind : kinds()) {
    const Case<float> c = make_case<float>(kind.options, kind.input, 6);
    auto memory = std::move(c.model.make_activations(3)).value();
    const std::vector<float> first = gradients(c, memory, 0, 3);
    const std::vector<float> second = gradients(c, memory, 3, 3);
    auto other = std::move(memory.sibling()).value();
    const std::int64_t half = 3 * c.model.input().elems();
    std::copy_n(c.x.begin(), half, memory.values(0, 3).begin());
    std::copy_n(c.x.begin() + half, half, other.values(0, 3).begin());
    PassContext later = kContext;
    later.first_sample += 3;
    const ModelPass<float> one{c.params, 3, &memory, kContext};
    const ModelPass<float> two{c.params, 3, &other, later};
    c.model.forward(one);
    c.model.forward(two);
    const auto back = [&](const ModelPass<float>& pass, std::size_t part) {
      const std::span<const std::uint32_t> all(c.labels);
      const std::size_t count = all.size() / 2;
      mean_loss<float>(c.model.loss(), pass.activations->values(c.model.last_level(), 3),
                       all.subspan(part * count, count),
                       pass.activations->deltas(c.model.last_level(), 3));
      std::vector<float> grads(first.size(), 777.0f);
      EXPECT_TRUE(c.model.backward(pass, grads, ignore).ok());
      return grads;
    };
    EXPECT_EQ(back(two, 1), second) << kind.options.name;
    EXPECT_EQ(back(one, 0), first) << kind.options.name;
  }
}

TEST(Passes, PP16_RecomputeGivesTheSameBitsAndCollectsNothing) {
  for (const Kind& kind : kinds()) {
    const Case<float> c = make_case<float>(kind.options, kind.input, 4);
    auto memory = std::move(c.model.make_activations(4)).value();
    std::vector<double> statistics(static_cast<std::size_t>(c.model.statistics_elems()));
    ModelPass<float> pass{c.params, 4, &memory, kContext, c.buffers, statistics};
    std::copy(c.x.begin(), c.x.end(), memory.values(0, 4).begin());
    const auto logits = c.model.forward(pass);
    const std::vector<float> before(logits.begin(), logits.end());
    const std::vector<double> collected = statistics;
    EXPECT_EQ(std::any_of(collected.begin(), collected.end(), [](double s) { return s != 0; }),
              !collected.empty());
    pass.context.mode = PassMode::kRecompute;
    const auto again = c.model.forward(pass);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), again.begin())) << kind.options.name;
    EXPECT_EQ(statistics, collected);
  }
}

TEST(Passes, EvaluationNeitherDropsNorCollects) {
  ModelOptions options{"gpt", {}, 8};
  const Case<float> plain = make_case<float>(options, {6, 1, 1}, 2);
  options.dropout = 0.3;
  const Case<float> dropping = make_case<float>(options, {6, 1, 1}, 2);
  std::vector<std::vector<float>> seen;
  for (const Case<float>* c : {&plain, &dropping}) {
    auto memory = std::move(c->model.make_activations(2)).value();
    std::copy(c->x.begin(), c->x.end(), memory.values(0, 2).begin());
    PassContext context = kContext;
    context.mode = PassMode::kEvaluate;
    const auto logits = c->model.forward({c->params, 2, &memory, context});
    seen.emplace_back(logits.begin(), logits.end());
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST(Dropout, MaskBelongsToTheSampleAndKeepsTheMean) {
  const SampleShape shape{40, 1, 1};
  const Dropout<float> layer(shape, 0.25, "name");
  LayerRun<float> whole(layer, 500, std::vector<float>(500 * 40, 3.0f), {});
  whole.context = {PassMode::kTrain, 9, 8, 100};
  const std::vector<float> y = whole.forward();
  // 20,000 draws of probability 1/4: sd 61.
  EXPECT_NEAR(std::count(y.begin(), y.end(), 0.0f), 5000, 6 * 61);
  EXPECT_EQ(std::count(y.begin(), y.end(), 4.0f) + std::count(y.begin(), y.end(), 0.0f), 20000);
  // Another rank's part of the batch: the same samples, the same masks.
  LayerRun<float> part(layer, 123, std::vector<float>(123 * 40, 3.0f), {});
  part.context = {PassMode::kTrain, 9, 8, 100 + 77};
  part.forward();
  EXPECT_TRUE(std::equal(part.y.begin(), part.y.end(), y.begin() + 77 * 40));
  for (const PassContext other :
       {PassContext{PassMode::kTrain, 10, 8, 100}, PassContext{PassMode::kTrain, 9, 9, 100}}) {
    whole.context = other;
    EXPECT_NE(whole.forward(), y);
  }
  const Dropout<float> second(shape, 0.25, "another");
  LayerRun<float> named(second, 500, std::vector<float>(500 * 40, 3.0f), {});
  named.context = {PassMode::kTrain, 9, 8, 100};
  EXPECT_NE(named.forward(), y);
}

TEST(BatchNorm2d, ByHandAndWithRunningStatistics) {
  const BatchNorm2d<double> layer({1, 1, 2});
  LayerRun<double> r(layer, 2, {1, 3, 5, 7}, {2, 10});
  const double scale = 2 / std::sqrt(5 + BatchNorm2d<double>::kEpsilon);  // mean 4, variance 5
  r.forward();
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(r.y[i], (r.x[i] - 4) * scale + 10, 1e-14);
  }
  EXPECT_THAT(r.statistics, ::testing::ElementsAre(4, 16, 1 + 9 + 25 + 49));
  layer.commit(r.statistics, r.buffers);
  // 0.9 * 0 + 0.1 * 4, and 0.9 * 1 + 0.1 * 20 / 3 (unbiased)
  EXPECT_NEAR(r.buffers[0], 0.4, 1e-15);
  EXPECT_NEAR(r.buffers[1], 0.9 + 2.0 / 3, 1e-15);
  r.context.mode = PassMode::kEvaluate;
  r.forward();
  EXPECT_NEAR(r.y[0], 2 * (1 - 0.4) / std::sqrt(0.9 + 2.0 / 3 + 1e-5) + 10, 1e-14);
  EXPECT_THAT(r.statistics, ::testing::ElementsAre(4, 16, 84));
}

// What micro-batches of one step leave in the running statistics is what the whole batch
// would, though each is normalised by itself.
TEST(BatchNorm2d, PP16_StatisticsOfMicroBatchesAreThoseOfTheBatch) {
  const SampleShape shape{3, 4, 5};
  const BatchNorm2d<float> layer(shape);
  const std::vector<float> x = draws<float>(12 * shape.elems(), 31);
  const std::vector<float> params{1, 1, 1, 0, 0, 0};
  LayerRun<float> whole(layer, 12, x, params);
  whole.forward();
  layer.commit(whole.statistics, whole.buffers);
  std::vector<double> sums(static_cast<std::size_t>(layer.statistics_elems()));
  for (std::int64_t part = 0; part < 4; ++part) {
    const auto first = x.begin() + part * 3 * shape.elems();
    LayerRun<float> micro(layer, 3, {first, first + 3 * shape.elems()}, params);
    micro.forward();
    micro.context.mode = PassMode::kRecompute;
    micro.forward();
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += micro.statistics[i];
  }
  std::vector<float> buffers{0, 0, 0, 1, 1, 1};
  layer.commit(sums, buffers);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_NEAR(buffers[i], whole.buffers[i], 1e-6);
    EXPECT_NE(buffers[i], i < 3 ? 0.0f : 1.0f);
  }
}

}  // namespace
}  // namespace gradwire::passes_test
