// The loop: what it computes by hand, what ranks and micro-batches agree on, what it refuses.
#include "trainer/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/elements.h"
#include "tests/trainer/test_strategies.h"
#include "tests/trainer/training_problems.h"
#include "trainer/strategy/single_process.h"

namespace gradwire::training_test {
namespace {

using ::testing::ElementsAre;

// Calls the given function in place of the exchange, with the gradients of this rank.
class Exchange : public OwnStrategy {
 public:
  explicit Exchange(std::function<void(std::vector<std::span<float>>&)> exchange)
      : exchange_(std::move(exchange)) {}
  Status on_gradient(int index, TensorView grad, const Stream& /*stream*/) override {
    if (static_cast<std::size_t>(index) >= grads_.size()) grads_.resize(index + 1u);
    grads_[static_cast<std::size_t>(index)] = elements<float>(grad);
    return {};
  }
  Status finish(const Stream& /*stream*/) override {
    exchange_(grads_);
    return {};
  }

 private:
  std::function<void(std::vector<std::span<float>>&)> exchange_;
  std::vector<std::span<float>> grads_;
};

// Ranks as threads: gradients fold in rank order from rank 0's, times 1/N, all in float.
class Canonical {
 public:
  explicit Canonical(int ranks)
      : barrier_(ranks), grads_(static_cast<std::size_t>(ranks)), values_(grads_.size()) {}

  class OfRank : public OwnStrategy {
   public:
    OfRank(Canonical& all, int rank) : all_(all), rank_(static_cast<std::size_t>(rank)) {}
    Status on_gradient(int /*index*/, TensorView grad, const Stream& /*stream*/) override {
      all_.grads_[rank_].push_back(elements<float>(grad));
      return {};
    }
    Status finish(const Stream& /*stream*/) override {
      all_.barrier_.arrive_and_wait();
      if (rank_ == 0) all_.fold();
      all_.barrier_.arrive_and_wait();
      all_.grads_[rank_].clear();
      return {};
    }
    int ranks(Scope scope) const override {
      return scope == Scope::kData ? static_cast<int>(all_.values_.size()) : 1;
    }
    Status sum(std::span<double> values, Scope /*scope*/) override {
      all_.values_[rank_] = values[0];
      all_.barrier_.arrive_and_wait();
      double sum = 0;
      for (const double value : all_.values_) sum += value;
      all_.barrier_.arrive_and_wait();
      values[0] = sum;
      return {};
    }

   private:
    Canonical& all_;
    std::size_t rank_;
  };

 private:
  void fold() {
    const float factor = 1.0f / static_cast<float>(grads_.size());
    for (std::size_t tensor = 0; tensor < grads_[0].size(); ++tensor) {
      for (std::size_t i = 0; i < grads_[0][tensor].size(); ++i) {
        float sum = grads_[0][tensor][i];
        for (std::size_t r = 1; r < grads_.size(); ++r) sum += grads_[r][tensor][i];
        for (auto& rank : grads_) rank[tensor][i] = sum * factor;
      }
    }
  }
  std::barrier<> barrier_;
  std::vector<std::vector<std::span<float>>> grads_;
  std::vector<double> values_;
};

struct Outcome {
  std::vector<float> params;
  double accuracy = 0;
  std::vector<double> losses;
};

Outcome train(const Model<float>& model, const TrainingOptions& options, Strategy& strategy) {
  Outcome outcome;
  auto trainer = Trainer::create(model, digits(), options);
  EXPECT_TRUE(trainer.has_value()) << trainer.error().message();
  if (!trainer.has_value()) return outcome;
  const auto accuracy = trainer.value().run(strategy, [&](const StepReport& report) {
    outcome.losses.push_back(report.loss);
    return Status();
  });
  EXPECT_TRUE(accuracy.has_value()) << accuracy.error().message();
  if (accuracy.has_value()) outcome.accuracy = accuracy.value();
  outcome.params = flat(trainer.value().parameters());
  return outcome;
}

void expect_ranks_equal_micro_batches(const Model<float>& model, TrainingOptions options, int n) {
  SingleProcess alone;
  options.accumulate = n;
  const Outcome one = train(model, options, alone);
  options.accumulate = 1;
  options.ranks = n;
  Canonical all(n);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(n));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank, own = options]() mutable {
      own.rank = rank;
      Canonical::OfRank strategy(all, rank);
      outcomes[static_cast<std::size_t>(rank)] = train(model, own, strategy);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.params, one.params) << n << " ranks";
    EXPECT_EQ(outcome.accuracy, one.accuracy);
    for (std::size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(outcome.losses[i], one.losses[i], 1e-12);
    }
  }
}

TEST(Training, RanksEqualMicroBatchesBitForBit) {
  for (const int n : {2, 3, 4}) {
    TrainingOptions options;
    options.batch = 48;
    options.steps = 20;
    options.seed = 3;
    expect_ranks_equal_micro_batches(mlp(), options, n);
    options.momentum_at = MomentumAt::kWorker;
    expect_ranks_equal_micro_batches(mlp(), options, n);
  }
  TrainingOptions options;
  options.batch = 12;
  options.steps = 5;
  expect_ranks_equal_micro_batches(cnn(), options, 3);
}

TEST(Training, T2_MeanOverSamplesEqualsTheBatchGradient) {
  TrainingOptions options;
  options.batch = 16;
  options.steps = 1;
  std::vector<float> whole;
  std::vector<float> single;
  for (const auto& [accumulate, seen] : {std::pair(1, &whole), std::pair(16, &single)}) {
    options.accumulate = accumulate;
    Exchange strategy([seen = seen](auto& grads) {
      for (const auto grad : grads) seen->insert(seen->end(), grad.begin(), grad.end());
    });
    train(mlp(), options, strategy);
  }
  ASSERT_EQ(whole.size(), single.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], single[i], 1e-6);
}

TEST(Training, ServerMomentumByHand) {
  // Whatever the gradients were, the strategy says 1: x moves by lr (1 + 1.5 + 1.75 * 0.5).
  TrainingOptions options;
  options.batch = 10;
  options.steps = 3;
  options.lr = 0.125;
  options.momentum = 0.5;
  options.schedule.changes = {{2.0 / 3, 0.5}};
  Exchange strategy([](auto& grads) {
    for (auto grad : grads) std::fill(grad.begin(), grad.end(), 1.0f);
  });
  SingleProcess none;
  const Outcome trained = train(mlp(), options, strategy);
  options.steps = 0;
  const Outcome start = train(mlp(), options, none);
  ASSERT_EQ(trained.params.size(), start.params.size());
  for (std::size_t i = 0; i < start.params.size(); ++i) {
    EXPECT_NEAR(trained.params[i], start.params[i] - 0.125f * 3.375f, 1e-6);
  }
}

TEST(Training, WorkerMomentumIsHandedToTheStrategyAndNotAppliedAgain) {
  // With lr 0 and the same samples at every step the gradient g is constant: u = g, 1.5 g, 1.75 g.
  TrainingOptions options;
  options.batch = 1437;
  options.steps = 3;
  options.lr = 0;
  options.momentum = 0.5;
  options.momentum_at = MomentumAt::kWorker;
  options.shuffle = Shuffle::kNone;
  std::vector<float> seen;
  Exchange watch([&](auto& grads) { seen.push_back(grads[0][100]); });
  train(mlp(), options, watch);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_NE(seen[0], 0);
  EXPECT_EQ(seen[1], 0.5f * seen[0] + seen[0]);
  EXPECT_EQ(seen[2], 0.5f * seen[1] + seen[0]);
  // The optimizer takes what the strategy leaves, three times the same.
  options.lr = 0.25;
  options.momentum = 0.9;
  Exchange ones([](auto& grads) {
    for (auto grad : grads) std::fill(grad.begin(), grad.end(), 1.0f);
  });
  SingleProcess none;
  const Outcome trained = train(mlp(), options, ones);
  options.steps = 0;
  const Outcome start = train(mlp(), options, none);
  for (std::size_t i = 0; i < start.params.size(); ++i) {
    EXPECT_NEAR(trained.params[i], start.params[i] - 0.75f, 1e-6);
  }
}

// A gradient of length 6 * sqrt(elements), whatever the data: cut to length 3 it moves every
// parameter by the same small step; left alone when it is shorter than the limit.
TEST(Training, ClipsWhatTheStrategyLeaves) {
  TrainingOptions options;
  options.batch = 10;
  options.steps = 1;
  options.lr = 1;
  options.momentum = 0;
  options.clip = 3;
  SingleProcess none;
  options.steps = 0;
  const Outcome start = train(mlp(), options, none);
  options.steps = 1;
  const auto moved = [&](float value) {
    Exchange strategy([value](auto& grads) {
      for (auto grad : grads) std::fill(grad.begin(), grad.end(), value);
    });
    return start.params[7] - train(mlp(), options, strategy).params[7];
  };
  const double each = std::sqrt(static_cast<double>(start.params.size()));
  EXPECT_NEAR(moved(6), 3 / each, 1e-6);
  EXPECT_NEAR(moved(-6), -3 / each, 1e-6);
  EXPECT_NEAR(moved(static_cast<float>(2 / each)), 2 / each, 1e-6);
}

TEST(Training, ClipsEveryWorkersGradientBeforeTheStrategySeesIt) {
  TrainingOptions options;
  options.batch = 48;
  options.steps = 3;
  options.lr = 0;
  options.momentum = 0;
  const auto lengths = [&](double clip_worker) {
    options.clip_worker = clip_worker;
    std::vector<double> seen;
    Exchange watch([&](auto& grads) {
      double sum = 0;
      for (const auto grad : grads) {
        for (const float g : grad) sum += static_cast<double>(g) * g;
      }
      seen.push_back(std::sqrt(sum));
    });
    train(mlp(), options, watch);
    return seen;
  };
  const std::vector<double> free = lengths(0);
  // Of the three the limit is below two, so both cases are here.
  constexpr double kLimit = 0.17;
  const std::vector<double> clipped = lengths(kLimit);
  ASSERT_EQ(clipped.size(), 3u);
  EXPECT_EQ(std::count_if(free.begin(), free.end(), [](double l) { return l > kLimit; }), 2);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(clipped[i], std::min(free[i], kLimit), 1e-6);
  EXPECT_EQ(lengths(1000), free);
}

TEST(Training, ClippedRanksEqualClippedMicroBatchesBitForBit) {
  TrainingOptions options;
  options.batch = 48;
  options.steps = 10;
  options.seed = 3;
  options.clip = 0.4;
  options.clip_worker = 0.5;
  options.optimizer.name = "adamw";
  options.optimizer.weight_decay = 0.1;
  options.lr = 0.01;
  expect_ranks_equal_micro_batches(mlp(), options, 3);
  options.optimizer.name = "sgd";
  options.momentum_at = MomentumAt::kWorker;
  expect_ranks_equal_micro_batches(mlp(), options, 3);
}

TEST(Training, ReportsAndDropsTheIncompleteBatch) {
  TrainingOptions options;
  options.batch = 400;  // 3 steps an epoch, 237 samples dropped
  options.epochs = 2;
  options.eval_every = 4;
  options.lr = 0.1;
  options.schedule.changes = {{0.5, 0.1}};
  auto trainer = Trainer::create(mlp(), digits(), options);
  ASSERT_TRUE(trainer.has_value());
  EXPECT_EQ(trainer.value().steps_per_epoch(), 3);
  std::vector<std::int64_t> steps;
  std::vector<std::int64_t> epochs;
  std::vector<bool> evaluated;
  std::vector<double> rates;
  SingleProcess strategy;
  const auto accuracy = trainer.value().run(strategy, [&](const StepReport& report) {
    steps.push_back(report.step);
    epochs.push_back(report.epoch);
    evaluated.push_back(report.accuracy.has_value());
    rates.push_back(report.lr);
    EXPECT_GT(report.compute_seconds, 0);
    return Status();
  });
  ASSERT_TRUE(accuracy.has_value());
  EXPECT_THAT(steps, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(epochs, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(evaluated, ElementsAre(false, false, false, true, false, true));
  EXPECT_THAT(rates, ElementsAre(0.1, 0.1, 0.1, 0.1 * 0.1, 0.1 * 0.1, 0.1 * 0.1));
}

TEST(Training, FirstLossOfAFreshModelIsNearLogTen) {
  TrainingOptions options;
  options.batch = 1000;
  options.steps = 1;
  SingleProcess strategy;
  EXPECT_NEAR(train(mlp(), options, strategy).losses[0], std::log(10.0), 0.1);
}

TEST(Training, ZeroStepsKeepTheInitialParameters) {
  TrainingOptions options;
  options.steps = 0;
  options.batch = 5000;  // more than there are: no step needs them
  auto trainer = Trainer::create(mlp(), digits(), options);
  ASSERT_TRUE(trainer.has_value()) << trainer.error().message();
  const std::uint64_t before = trainer.value().parameter_hash().value();
  SingleProcess strategy;
  EXPECT_TRUE(trainer.value().run(strategy, nullptr).has_value());
  EXPECT_EQ(trainer.value().parameter_hash().value(), before);
  options.seed = 1;
  EXPECT_NE(Trainer::create(mlp(), digits(), options).value().parameter_hash().value(), before);
}

// Measured for seeds 1 to 6: 0.908 to 0.925 (mlp 64-128-64-10), 0.911 to 0.919 (cnn, seeds 1 to 3).
// The test digits come from other writers, which keeps small models from more.
TEST(Training, LearnsTheDigits) {
  TrainingOptions options;
  options.batch = 32;
  options.steps = 400;
  options.lr = 0.1;
  options.seed = 1;
  options.schedule.changes = {{0.6, 0.1}};
  const auto model = make_model<float>({"mlp", {128, 64}}, digits().shape(), 10);
  SingleProcess strategy;
  EXPECT_GT(train(model.value(), options, strategy).accuracy, 0.89);
  options.steps = 200;
  options.lr = 0.05;
  EXPECT_GT(train(cnn(), options, strategy).accuracy, 0.89);
}

TEST(Training, ErrorsOfTheStrategyEndTheRun) {
  struct Failing : OwnStrategy {
    Status on_gradient(int index, TensorView /*grad*/, const Stream& /*stream*/) override {
      return index == 2 ? Status(Code::kPeerLost, "rank 3 lost") : Status();
    }
  } strategy;
  TrainingOptions options;
  auto trainer = Trainer::create(mlp(), digits(), options);
  const auto ran = trainer.value().run(strategy, nullptr);
  ASSERT_FALSE(ran.has_value());
  EXPECT_EQ(ran.error().code(), Code::kPeerLost);
}

}  // namespace
}  // namespace gradwire::training_test
