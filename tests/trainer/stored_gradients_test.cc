// Training that keeps gradients in 16 bits alone, against training that keeps their sums in fp32.
#include "trainer/stored_gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fails.h"
#include "tests/trainer/test_strategies.h"
#include "tests/trainer/training_problems.h"
#include "trainer/clipping.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::stored_gradients_test {
namespace {

TrainingOptions some_steps(const std::string& optimizer, Precision precision) {
  TrainingOptions options;
  options.batch = 48;
  options.steps = 6;
  options.seed = 3;
  options.lr = optimizer == "adamw" ? 1e-3 : 0.05;
  options.optimizer.name = optimizer;
  options.precision = precision;
  options.offload_chunk = 777;
  return options;
}

struct Trained {
  std::vector<float> params;
  std::int64_t skipped = 0;
  std::vector<double> norms;
};

// What it is given stays as it is.
Trained train(TrainingOptions options, Strategy&& strategy = SingleProcess()) {
  options.places = {};
  auto trainer = Trainer::create(mlp(), digits(), options, strategy.demands());
  EXPECT_TRUE(trainer.has_value()) << trainer.error().message();
  Trained trained;
  const auto accuracy = trainer.value().run(strategy, [&](const StepReport& step) {
    trained.skipped += step.skipped ? 1 : 0;
    trained.norms.push_back(step.gradient_norm.value_or(0));
    return Status();
  });
  EXPECT_TRUE(accuracy.has_value());
  trained.params = flat(trainer.value().parameters());
  return trained;
}

// One worker's gradient is rounded to 16 bits in both forms, and rounding again changes nothing.
TEST(StoredGradients, OneWorkerTrainsAsWithMainGradients) {
  for (const std::string optimizer : {"sgd", "nesterov", "adamw"}) {
    for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
      for (const std::string scale : {"none", "1024", "dynamic"}) {
        TrainingOptions options = some_steps(optimizer, precision);
        options.loss_scale = LossScaleOptions::parse(scale).value();
        const Trained kept = train(options);
        options.main_gradients = false;
        const Trained stored = train(options);
        EXPECT_EQ(stored.params, kept.params) << optimizer << " " << scale;
        EXPECT_EQ(stored.skipped, kept.skipped);
      }
    }
  }
}

// Steps that overflow are left out, and change nothing.
TEST(StoredGradients, OverflowsAreFound) {
  TrainingOptions options = some_steps("sgd", Precision::kF16);
  options.loss_scale = LossScaleOptions::parse("dynamic").value();
  options.loss_scale.initial = 0x1p30;
  const Trained kept = train(options);
  EXPECT_GT(kept.skipped, 0);
  options.main_gradients = false;
  const Trained stored = train(options);
  EXPECT_EQ(stored.skipped, kept.skipped);
  EXPECT_EQ(stored.params, kept.params);
}

// Norms are sums in another order, so that a factor may differ by its last bit.
TEST(StoredGradients, ClippedAsWithMainGradients) {
  TrainingOptions options = some_steps("sgd", Precision::kBF16);
  options.clip = 0.1;
  const Trained kept = train(options);
  options.main_gradients = false;
  const Trained stored = train(options);
  ASSERT_EQ(stored.norms.size(), kept.norms.size());
  for (std::size_t i = 0; i < kept.norms.size(); ++i) {
    EXPECT_GT(kept.norms[i], options.clip);
    EXPECT_NEAR(stored.norms[i], kept.norms[i], 1e-5 * kept.norms[i]);
  }
  for (std::size_t i = 0; i < kept.params.size(); ++i) {
    ASSERT_NEAR(stored.params[i], kept.params[i], 1e-5) << i;
  }
}

// Sums of micro-batches are rounded each time: close, and not the same.
TEST(StoredGradients, MicroBatchesAreAddedUpInSixteenBits) {
  for (const std::string scale : {"none", "1024"}) {
    TrainingOptions options = some_steps("sgd", Precision::kBF16);
    options.loss_scale = LossScaleOptions::parse(scale).value();
    options.accumulate = 4;
    const Trained kept = train(options);
    options.main_gradients = false;
    const Trained stored = train(options);
    EXPECT_NE(stored.params, kept.params);
    double difference = 0;
    double moved = 0;
    options.steps = 0;
    const std::vector<float> start = train(options).params;
    for (std::size_t i = 0; i < kept.params.size(); ++i) {
      difference += std::pow(stored.params[i] - kept.params[i], 2);
      moved += std::pow(kept.params[i] - start[i], 2);
    }
    EXPECT_LT(std::sqrt(difference), 0.01 * std::sqrt(moved)) << scale;
  }
}

// A strategy that needs `late` more gradients before the first of them has its mean, as buckets do.
class Late final : public OwnStrategy {
 public:
  explicit Late(int late) : late_(late) {}
  Status on_gradient(int index, TensorView grad, const Stream&) override {
    newest_ = index;
    given_[index] = grad;
    const auto* values = reinterpret_cast<const float*>(grad.data());
    for (std::int64_t i = 0; i < grad.elems(); ++i) EXPECT_TRUE(std::isfinite(values[i]));
    return {};
  }
  Result<bool> arrived(int index, bool) override {
    if (index < newest_ + late_) return false;
    double_it(given_.at(index));
    given_.erase(index);
    return true;
  }
  // The rest of them.
  Status finish(const Stream&) override {
    for (auto& [index, grad] : given_) double_it(grad);
    given_.clear();
    return {};
  }

 private:
  static void double_it(TensorView& grad) {
    auto* values = reinterpret_cast<float*>(grad.data());
    for (std::int64_t i = 0; i < grad.elems(); ++i) values[i] *= 2;
  }
  int late_;
  int newest_ = 0;
  std::map<int, TensorView> given_;  // and not doubled yet
};

TEST(StoredGradients, WhatTheStrategyMakesOfThemIsKept) {
  TrainingOptions options = some_steps("sgd", Precision::kBF16);
  const Trained kept = train(options, Late(0));
  options.main_gradients = false;
  for (const int late : {1, 2, 100}) {
    EXPECT_EQ(train(options, Late(late)).params, kept.params) << late;
  }
}

// Its gradients are its own until the end.
class Doubles final : public OwnStrategy {
 public:
  Status on_gradient(int, TensorView grad, const Stream&) override {
    given_.push_back(grad);
    return {};
  }
  Status finish(const Stream&) override {
    for (TensorView& grad : given_) {
      auto* values = reinterpret_cast<float*>(grad.data());
      for (std::int64_t i = 0; i < grad.elems(); ++i) values[i] *= 2;
    }
    given_.clear();
    return {};
  }
  Demands demands() const override {
    Demands demands;
    demands.bytes_in_flight = 0;
    return demands;
  }

 private:
  std::vector<TensorView> given_;
};

TEST(StoredGradients, WhatHasNotArrivedIsKeptUntilTheStep) {
  TrainingOptions options = some_steps("sgd", Precision::kBF16);
  const Trained kept = train(options, Doubles());
  options.main_gradients = false;
  EXPECT_EQ(train(options, Doubles()).params, kept.params);
}

TEST(StoredGradients, MeansThatDoNotFitBecomeTheLargestThatDo) {
  auto stored = std::move(StoredGradients::create({}, Precision::kF16, 5)).value();
  stored.begin_step(1024);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(stored.keep(std::vector<float>{3e38F, -1e6F, 0x1p-20F, infinity, nan}, 0).ok());
  std::vector<float> back(5);
  ASSERT_TRUE(stored.read(0, back).ok());
  EXPECT_EQ(back[0], 65504.0F / 1024);
  EXPECT_EQ(back[1], -65504.0F / 1024);
  EXPECT_EQ(back[2], 0x1p-20F);
  EXPECT_EQ(back[3], infinity);
  EXPECT_TRUE(std::isnan(back[4]));
  EXPECT_FALSE(stored.finite().value());
  ASSERT_TRUE(stored.keep_scaled(std::vector<float>{3, 4, 0, 0, 0}, 0).ok());
  EXPECT_TRUE(stored.finite().value());
  EXPECT_DOUBLE_EQ(stored.norm().value(), 5.0 / 1024);
  stored.shorten(5.0 / 1024, 1.0 / 1024);
  ASSERT_TRUE(stored.read(0, back).ok());
  EXPECT_FLOAT_EQ(back[1], 0.8F / 1024);
  stored.begin_step(1);
  ASSERT_TRUE(stored.read(1, std::span(back).first(1)).ok());
  EXPECT_EQ(back[0], 4);
}

TEST(StoredGradients, WhatNeedsSumsIsRefused) {
  const auto refused = [](auto&& change, const std::string& named) {
    TrainingOptions options = some_steps("sgd", Precision::kBF16);
    Demands demands;
    options.main_gradients = false;
    change(options, demands);
    const auto made = Trainer::create(mlp(), digits(), options, demands);
    ASSERT_FALSE(made.has_value()) << named;
    EXPECT_THAT(made.error(), fails(Code::kInvalidArgument, named));
  };
  using O = TrainingOptions;
  refused([](O& o, Demands&) { o.precision = Precision::kF32; }, "precision fp32");
  refused([](O& o, Demands&) { o.optimizer.name = "lamb"; }, "lamb");
  refused([](O&, Demands& d) { d.own_optimizer = true; }, "sharded");
  refused([](O&, Demands& d) { d.gradients_pass = true; }, "sharded");
  refused([](O&, Demands& d) { d.tells_arrival = false; }, "cannot tell");
  refused([](O& o, Demands&) { o.clip_worker = 1; }, "clip-worker 1");
  refused([](O& o, Demands&) { o.momentum_at = MomentumAt::kWorker; }, "worker");
  refused([](O&, Demands& d) { d.bytes_in_flight = -1; }, "in flight -1");
}

}  // namespace
}  // namespace gradwire::stored_gradients_test
