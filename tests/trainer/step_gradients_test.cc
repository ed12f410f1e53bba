// Training whose gradients are handed over in 16 bits, against training that hands them over in
// fp32; and what steps are made from.
#include "trainer/step/step_gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "tests/support/fails.h"
#include "tests/trainer/test_strategies.h"
#include "tests/trainer/training_problems.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::step_gradients_test {
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

// As if the strategy took gradients in fp32 alone.
class InFp32 : public OwnStrategy {
 public:
  Demands demands() const override {
    Demands demands;
    demands.takes_narrow = false;
    return demands;
  }
};

// A single process that wants to know that nothing is infinite before it takes anything.
class Waits : public OwnStrategy {
 public:
  Demands demands() const override {
    Demands demands;
    demands.takes_scaled = false;
    return demands;
  }
  Status on_gradient(int, TensorView grad, const Stream&) override {
    for (const float value : values_of(grad)) EXPECT_TRUE(std::isfinite(value));
    return {};
  }
};

// One worker's gradient is rounded to 16 bits in all forms, and rounding again changes nothing.
TEST(StepGradients, OneWorkerTrainsAsInFp32) {
  for (const std::string optimizer : {"sgd", "nesterov", "adamw"}) {
    for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
      for (const std::string scale : {"none", "1024", "dynamic"}) {
        TrainingOptions options = some_steps(optimizer, precision);
        options.loss_scale = LossScaleOptions::parse(scale).value();
        const Trained wide = train(options, InFp32());
        EXPECT_EQ(train(options).params, wide.params) << optimizer << " " << scale;
        EXPECT_EQ(train(options, Waits()).params, wide.params) << optimizer << " " << scale;
        options.main_gradients = false;
        EXPECT_EQ(train(options).params, wide.params) << optimizer << " " << scale;
      }
    }
  }
}

// Lamb's lengths are sums of chunks here, of whole tensors there.
TEST(StepGradients, LambStepsFromSixteenBits) {
  TrainingOptions options = some_steps("lamb", Precision::kBF16);
  options.lr = 0.01;
  const Trained wide = train(options, InFp32());
  const Trained narrow = train(options);
  for (std::size_t i = 0; i < wide.params.size(); ++i) {
    ASSERT_NEAR(narrow.params[i], wide.params[i], 1e-6) << i;
  }
}

// Steps that overflow are left out, and change nothing, whenever that is found.
TEST(StepGradients, OverflowsAreFound) {
  TrainingOptions options = some_steps("sgd", Precision::kF16);
  options.loss_scale = LossScaleOptions::parse("dynamic").value();
  options.loss_scale.initial = 0x1p30;
  const Trained wide = train(options, InFp32());
  EXPECT_GT(wide.skipped, 0);
  const Trained narrow = train(options);
  EXPECT_EQ(narrow.skipped, wide.skipped);
  EXPECT_EQ(narrow.params, wide.params);
  const Trained waiting = train(options, Waits());
  EXPECT_EQ(waiting.skipped, wide.skipped);
  EXPECT_EQ(waiting.params, wide.params);
}

// Norms are sums in another order, so that a factor may differ by its last bit.
TEST(StepGradients, ClippedAsInFp32) {
  TrainingOptions options = some_steps("sgd", Precision::kBF16);
  options.clip = 0.1;
  const Trained kept = train(options, InFp32());
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
TEST(StepGradients, MicroBatchesAreAddedUpInSixteenBits) {
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

// Doubles what it is given at the end; `Of` says in which form it is given that.
template <typename Of>
class Doubles final : public Of {
 public:
  Status on_gradient(int, TensorView grad, const Stream&) override {
    given_.push_back(grad);
    return {};
  }
  Status finish(const Stream&) override {
    for (const TensorView& grad : given_) multiply(grad, 2);
    given_.clear();
    return {};
  }

 private:
  std::vector<TensorView> given_;
};

TEST(StepGradients, AStepIsMadeOfWhatTheStrategyLeaves) {
  TrainingOptions options = some_steps("sgd", Precision::kBF16);
  const Trained wide = train(options, Doubles<InFp32>());
  EXPECT_NE(train(options).params, wide.params);
  EXPECT_EQ(train(options, Doubles<OwnStrategy>()).params, wide.params);
  EXPECT_EQ(train(options, Doubles<Waits>()).params, wide.params);
}

// Parts lie apart, one of them empty, and bear a scale; they are read as one.
TEST(StepGradients, PartsAreReadAsOneWithoutTheScale) {
  std::vector<float> wide{8, -16, 0, 32, 64};
  std::vector<std::uint16_t> half(5);
  store(Precision::kF16, wide, half);
  const auto parts = [](auto& values, DType dtype) {
    auto* const first = reinterpret_cast<std::byte*>(values.data());
    const std::size_t width = size_of(dtype);
    return std::vector<TensorView>{{first + 2 * width, Shape::vector(3), dtype},
                                   {first, Shape::vector(0), dtype},
                                   {first, Shape::vector(2), dtype}};
  };
  for (const bool narrow : {false, true}) {
    auto made =
        StepGradients::create({}, narrow ? parts(half, DType::kF16) : parts(wide, DType::kF32));
    ASSERT_TRUE(made.has_value());
    StepGradients& gradients = made.value();
    gradients.begin_step(8);
    std::vector<float> all(5);
    ASSERT_TRUE(gradients.read(0, all).ok());
    EXPECT_EQ(all, (std::vector<float>{0, 4, 8, 1, -2}));
    ASSERT_TRUE(gradients.read(2, std::span(all).first(2)).ok());
    EXPECT_EQ(all[0], 8);
    EXPECT_EQ(all[1], 1);
    EXPECT_EQ(gradients.squares().value(), (std::vector<double>{80, 0, 5}));
    EXPECT_TRUE(gradients.finite().value());
    ASSERT_TRUE(gradients.shorten(10, 5).ok());
    ASSERT_TRUE(gradients.read(1, std::span(all).first(3)).ok());
    EXPECT_EQ(all[0], 2);
    EXPECT_EQ(all[1], 4);
    EXPECT_EQ(all[2], 0.5F);
  }
  half[1] = 0x7c00;  // infinity
  auto made = StepGradients::create({}, parts(half, DType::kF16));
  EXPECT_FALSE(made.value().finite().value());
}

TEST(StepGradients, WhatNeedsSumsIsRefused) {
  const auto refused = [](auto&& change, const std::string& named) {
    TrainingOptions options = some_steps("sgd", Precision::kBF16);
    Demands demands;
    options.main_gradients = false;
    options.accumulate = 2;
    change(options, demands);
    const auto made = Trainer::create(mlp(), digits(), options, demands);
    ASSERT_FALSE(made.has_value()) << named;
    EXPECT_THAT(made.error(), fails(Code::kInvalidArgument, named));
  };
  using O = TrainingOptions;
  refused([](O& o, Demands&) { o.precision = Precision::kF32; }, "precision fp32");
  refused([](O&, Demands& d) { d.takes_narrow = false; }, "something else");
  refused([](O&, Demands& d) { d.each_micro_batch = true; }, "each micro-batch");
  refused([](O& o, Demands&) { o.clip_worker = 1; }, "clip-worker 1");
  refused([](O& o, Demands&) { o.momentum_at = MomentumAt::kWorker; }, "worker");
}

}  // namespace
}  // namespace gradwire::step_gradients_test
