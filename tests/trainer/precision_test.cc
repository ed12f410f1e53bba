// Storage in 16 bits, the loss scale, and what a step leaves out when gradients overflow.
#include "trainer/precision.h"
#include "tests/support/fails.h"
#include "tests/trainer/test_strategies.h"
#include "tests/trainer/training_problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/elements.h"
#include "trainer/models.h"
#include "trainer/step/loss_scale.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::precision_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

using ::testing::ElementsAre;

std::vector<float> through(Precision precision, std::vector<float> values) {
  std::vector<std::uint16_t> stored(values.size());
  store(precision, values, stored);
  load(precision, stored, values);
  return values;
}

TEST(Precision, KeepsWhatTheTypeHolds) {
  const float inf = std::numeric_limits<float>::infinity();
  // bf16: 8 bits of significand; 1 + 2^-8 is a tie to even, 1 + 3 * 2^-8 goes up.
  EXPECT_THAT(through(Precision::kBF16, {1.00390625F, 1.01171875F, 70000, 1e-40F, -0.0F}),
              ElementsAre(1, 1.015625F, 70144, through(Precision::kBF16, {1e-40F})[0], -0.0F));
  // fp16: 11 bits; 65504 is the largest, 2^-24 the smallest.
  EXPECT_THAT(through(Precision::kF16, {1.00048828125F, 65519, 65520, 0x1p-24F, 0x1p-26F}),
              ElementsAre(1, 65504, inf, 0x1p-24F, 0));
  EXPECT_EQ(parse_precision("bf16").value(), Precision::kBF16);
  EXPECT_THAT(parse_precision("half").error(), fails(kInvalid, "half", "fp32", "bf16", "fp16"));
}

TEST(LossScaler, GrowsAfterCleanStepsAndBacksOffWhenItsPatienceEnds) {
  LossScaleOptions options = LossScaleOptions::parse("dynamic").value();
  EXPECT_EQ(options.initial, 65536);
  options.growth_every = 3;
  LossScaler scaler = LossScaler::create(options).value();
  const auto after = [&](const std::string& steps) {
    for (const char step : steps) scaler.update(step == 'x');
    return scaler.scale();
  };
  EXPECT_EQ(after("x"), 65536);  // the first of two
  EXPECT_EQ(after("x"), 32768);
  EXPECT_EQ(after("x"), 16384);  // no hysteresis left before it grows
  EXPECT_EQ(after(".."), 16384);
  EXPECT_EQ(after("."), 32768);
  EXPECT_EQ(after("x"), 32768);    // hysteresis was given anew
  EXPECT_EQ(after("..x"), 16384);  // the count of clean steps began anew
  EXPECT_EQ(after("xxxxxxxxxxxxxxxxxxxx"), 1);
}

TEST(LossScaler, GoesOnFromItsState) {
  LossScaleOptions options = LossScaleOptions::parse("dynamic").value();
  options.growth_every = 3;
  LossScaler one = LossScaler::create(options).value();
  for (const bool overflow : {true, false, false}) one.update(overflow);
  std::vector<double> state(LossScaler::kStateSize);
  one.save(state);
  EXPECT_THAT(state, ElementsAre(65536, 2, 1));
  LossScaler two = LossScaler::create(options).value();
  ASSERT_TRUE(two.load(state).ok());
  for (const bool overflow : {false, true, true, true}) {
    one.update(overflow);
    two.update(overflow);
    EXPECT_EQ(one.scale(), two.scale());
  }
  for (const std::vector<double>& bad :
       {std::vector<double>{0, 0, 0}, {1, 3, 0}, {1, 0.5, 0}, {1, 0, 3}, {std::nan(""), 0, 0}}) {
    EXPECT_EQ(two.load(bad).code(), Code::kInvalidArgument);
  }
}

TEST(LossScaler, FixedOnesStayAndBadOptionsAreRefused) {
  LossScaler fixed = LossScaler::create(LossScaleOptions::parse("128").value()).value();
  for (int i = 0; i < 5000; ++i) fixed.update(i % 2 == 0);
  EXPECT_EQ(fixed.scale(), 128);
  for (const char* text : {"", "0", "-1", "Dynamic", "inf"}) {
    EXPECT_FALSE(LossScaleOptions::parse(text).has_value()) << text;
  }
  LossScaleOptions options;
  options.backoff = 1;
  EXPECT_THAT(LossScaler::create(options).error(), fails(kInvalid, "backoff 1"));
}

TrainingOptions options() {
  TrainingOptions o;
  o.batch = 48;
  o.steps = 30;
  o.seed = 3;
  return o;
}

// Spoils the gradients of some steps as an overflow would, and writes down what it is told.
class Spoiler : public OwnStrategy {
 public:
  explicit Spoiler(std::function<bool(int step)> overflows) : overflows_(std::move(overflows)) {}
  Result<bool> any(bool overflow, Scope /*scope*/) override {
    told_.push_back(overflow);
    return overflow || overflows_(static_cast<int>(told_.size()) - 1);
  }
  Status before_step(double lr) override {
    rates_.push_back(lr);
    return {};
  }
  const std::vector<bool>& told() const { return told_; }
  const std::vector<double>& rates() const { return rates_; }

 private:
  std::function<bool(int)> overflows_;
  std::vector<bool> told_;
  std::vector<double> rates_;
};

std::vector<float> train(const TrainingOptions& o, Strategy& strategy,
                         std::vector<StepReport>* reports = nullptr) {
  auto trainer = Trainer::create(mlp(), digits(), o);
  EXPECT_TRUE(trainer.has_value()) << trainer.error().message();
  const auto ran = trainer.value().run(strategy, [&](const StepReport& report) {
    if (reports != nullptr) reports->push_back(report);
    return Status();
  });
  EXPECT_TRUE(ran.has_value()) << ran.error().message();
  return flat(trainer.value().parameters());
}

TEST(MixedPrecision, APowerOfTwoScaleChangesNoBitInFp32) {
  SingleProcess plain;
  TrainingOptions o = options();
  const std::vector<float> wanted = train(o, plain);
  o.loss_scale = LossScaleOptions::parse("1024").value();
  EXPECT_EQ(train(o, plain), wanted);
  o.accumulate = 3;
  const std::vector<float> scaled = train(o, plain);
  o.loss_scale = {};
  EXPECT_EQ(train(o, plain), scaled);
}

TEST(MixedPrecision, StoredParametersAreWhatLayersSeeAndTheMasterKeepsMore) {
  for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
    SingleProcess plain;
    TrainingOptions o = options();
    o.precision = precision;
    o.steps = 1;
    o.lr = 0;
    std::vector<StepReport> reports;
    const std::vector<float> master = train(o, plain, &reports);
    EXPECT_NE(through(precision, master), master);
    // The loss of a model whose fp32 parameters are the stored ones is the same to the last bit.
    o.precision = Precision::kF32;
    auto trainer = Trainer::create(mlp(), digits(), o);
    for (const NamedTensor& named : trainer.value().parameters()) {
      const auto values = elements<float>(named.tensor);
      const auto kept = through(precision, {values.begin(), values.end()});
      std::copy(kept.begin(), kept.end(), values.begin());
    }
    double loss = 0;
    ASSERT_TRUE(trainer.value()
                    .run(plain,
                         [&](const StepReport& report) {
                           loss = report.loss;
                           return Status();
                         })
                    .has_value());
    EXPECT_EQ(loss, reports[0].loss);
  }
}

TEST(MixedPrecision, GradientsAreStoredInTheTypeAndAddedInFp32) {
  // In fp32, or in the type, they are handed over.
  class Taking final : public OwnStrategy {
   public:
    explicit Taking(bool narrow) { demands_.takes_narrow = narrow; }
    Demands demands() const override { return demands_; }

   private:
    Demands demands_;
  };
  for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
    const auto gradients = [&](int accumulate, bool narrow) {
      TrainingOptions o = options();
      o.precision = precision;
      o.steps = 1;
      o.accumulate = accumulate;
      Taking strategy(narrow);
      auto trainer = Trainer::create(mlp(), digits(), o, strategy.demands());
      EXPECT_TRUE(trainer.value().run(strategy, nullptr).has_value());
      return flat(trainer.value().gradients());
    };
    const std::vector<float> one = gradients(1, false);
    EXPECT_EQ(through(precision, one), one);  // of one micro-batch: what was stored
    EXPECT_EQ(gradients(1, true), one);
    const std::vector<float> four = gradients(4, false);
    EXPECT_NE(through(precision, four), four);  // a mean of four has more bits
    EXPECT_EQ(gradients(4, true), through(precision, four));
  }
}

TEST(MixedPrecision, LearnsAsFp32Does) {
  TrainingOptions o = options();
  o.steps = 150;
  const auto last = [&](Precision precision, const char* scale) {
    o.precision = precision;
    o.loss_scale = LossScaleOptions::parse(scale).value();
    SingleProcess plain;
    std::vector<StepReport> reports;
    train(o, plain, &reports);
    return reports.back().loss;
  };
  const double wanted = last(Precision::kF32, "none");
  EXPECT_NEAR(last(Precision::kBF16, "none"), wanted, 0.1 * wanted + 0.02);
  EXPECT_NEAR(last(Precision::kF16, "dynamic"), wanted, 0.1 * wanted + 0.02);
}

// The contract of a step left out: data goes on, the rate's schedule, the optimizer and all that
// the strategy keeps do not.
TEST(MixedPrecision, AnOverflowOnAnyRankLeavesTheStepOut) {
  TrainingOptions o = options();
  o.steps = 6;
  o.optimizer.name = "adamw";
  o.schedule = LrSchedule::parse("warmup:4").value();
  o.loss_scale = LossScaleOptions::parse("dynamic").value();
  o.loss_scale.hysteresis = 1;
  Spoiler strategy([](int step) { return step == 1 || step == 3; });  // as if another rank said so
  std::vector<StepReport> reports;
  train(o, strategy, &reports);
  std::vector<bool> skipped;
  std::vector<double> scales;
  for (const StepReport& report : reports) {
    skipped.push_back(report.skipped);
    scales.push_back(*report.loss_scale);
  }
  EXPECT_THAT(skipped, ElementsAre(false, true, false, true, false, false));
  EXPECT_THAT(scales, ElementsAre(65536, 65536, 32768, 32768, 16384, 16384));
  EXPECT_THAT(strategy.told(), ElementsAre(false, false, false, false, false, false));
  // before_step() of the updates alone, and the rate waits for them.
  EXPECT_THAT(strategy.rates(), ElementsAre(0.05 * 0.25, 0.05 * 0.5, 0.05 * 0.75, 0.05));
  EXPECT_EQ(reports[1].lr, reports[2].lr);
}

TEST(MixedPrecision, TheParametersAndMomentaOfASkippedStepAreThoseBeforeIt) {
  TrainingOptions o = options();
  o.steps = 3;
  o.loss_scale = LossScaleOptions::parse("8").value();
  auto trainer = Trainer::create(mlp(), digits(), o);
  Spoiler strategy([](int step) { return step == 1; });
  std::vector<std::vector<float>> params;
  std::vector<std::vector<float>> momenta;
  ASSERT_TRUE(trainer.value()
                  .run(strategy,
                       [&](const StepReport&) {
                         params.push_back(flat(trainer.value().parameters()));
                         momenta.push_back({});
                         for (const NamedTensor& named : trainer.value().state()) {
                           if (named.tensor.dtype() != DType::kF32) continue;
                           const auto m = elements<float>(ConstTensorView(named.tensor));
                           momenta.back().insert(momenta.back().end(), m.begin(), m.end());
                         }
                         return Status();
                       })
                  .has_value());
  EXPECT_EQ(params[1], params[0]);
  EXPECT_EQ(momenta[1], momenta[0]);
  EXPECT_NE(params[2], params[1]);
}

TEST(MixedPrecision, AScaleTooLargeForFp16ComesDownUntilStepsAreMade) {
  TrainingOptions o = options();
  o.steps = 60;
  o.precision = Precision::kF16;
  o.loss_scale = LossScaleOptions::parse("dynamic").value();
  o.loss_scale.initial = 0x1p40;
  Spoiler strategy([](int) { return false; });
  std::vector<StepReport> reports;
  train(o, strategy, &reports);
  EXPECT_TRUE(reports[0].skipped);
  EXPECT_TRUE(strategy.told()[0]);
  EXPECT_FALSE(reports.back().skipped);
  EXPECT_LT(*reports.back().loss_scale, 0x1p30);
  EXPECT_LT(reports.back().loss, reports[0].loss);
}

TEST(MixedPrecision, GoesOnFromItsStateBitForBit) {
  TrainingOptions o = options();
  o.steps = 12;
  o.optimizer.name = "adamw";
  o.precision = Precision::kF16;
  o.loss_scale = LossScaleOptions::parse("dynamic").value();
  o.loss_scale.growth_every = 4;
  o.schedule = LrSchedule::parse("warmup:3,cosine:0.1").value();
  const auto overflows = [](int step) { return step == 2; };
  Spoiler whole(overflows);
  const std::vector<float> wanted = train(o, whole);

  auto first = Trainer::create(mlp(), digits(), o);
  auto second = Trainer::create(mlp(), digits(), o);
  Spoiler before(overflows);
  const auto stopped = first.value().run(before, [&](const StepReport& report) {
    if (report.step < 6) return Status();
    const auto copy = [](const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to) {
      EXPECT_EQ(from.size(), to.size());
      for (std::size_t i = 0; i < from.size(); ++i) {
        EXPECT_EQ(from[i].name, to[i].name);
        std::memcpy(to[i].tensor.data(), from[i].tensor.data(), from[i].tensor.bytes().size());
      }
    };
    copy(first.value().parameters(), second.value().parameters());
    copy(first.value().state(), second.value().state());
    return Status(Code::kCancelled, "enough");
  });
  EXPECT_EQ(stopped.error().code(), Code::kCancelled);
  ASSERT_TRUE(second.value().adopt_state().ok());
  EXPECT_EQ(second.value().steps_done(), 7);
  Spoiler after([](int) { return false; });
  ASSERT_TRUE(second.value().run(after, nullptr).has_value());
  EXPECT_EQ(flat(second.value().parameters()), wanted);
}

}  // namespace
}  // namespace gradwire::precision_test
