// Memory by class: rows T6, T7, Z1, Z2 and Z8 of the trainer's acceptance table, measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "tests/trainer/test_strategies.h"
#include "tests/trainer/training_problems.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::memory_test {
namespace {

std::int64_t of(const MemoryByClass& all, MemoryClass what) {
  return all[static_cast<std::size_t>(what)];
}
std::int64_t sum(const MemoryByClass& all) {
  return std::accumulate(all.begin(), all.end(), std::int64_t{0});
}
std::int64_t elems(const Model<float>& model) { return parameter_elems(model.parameters()); }

TrainingOptions adamw(std::int64_t steps) {
  TrainingOptions options;
  options.batch = 48;
  options.steps = steps;
  options.seed = 3;
  options.lr = 1e-3;
  options.optimizer.name = "adamw";
  return options;
}

// What a run of some steps leaves in the accounts.
MemoryUse use_after(const Model<float>& model, TrainingOptions options,
                    Strategy&& strategy = SingleProcess()) {
  options.places = {};
  auto trainer = Trainer::create(model, digits(), options, strategy.demands());
  EXPECT_TRUE(trainer.has_value()) << trainer.error().message();
  EXPECT_TRUE(trainer.value().run(strategy, nullptr).has_value());
  const MemoryUse use = options.places.device.use();
  EXPECT_EQ(sum(use.now), use.total);
  return use;
}

RunMemory planned(const Model<float>& model, const RunMemoryQuestion& question) {
  auto memory = run_memory(model, question);
  EXPECT_TRUE(memory.has_value()) << memory.error().message();
  return memory.value();
}

TEST(MemoryArena, CountsWhatIsAllocatedUntilItGoes) {
  const MemoryArena arena;
  {
    auto first = arena.allocate(MemoryClass::kMoments, 1000);
    ASSERT_TRUE(first.has_value());
    auto second = arena.allocate(MemoryClass::kOther, 24);
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(arena.use().total, 1024);
    const Buffer moved = std::move(second).value();
    EXPECT_EQ(arena.use().now_of(MemoryClass::kOther), 24);
    EXPECT_EQ(moved.bytes().size(), 24U);
  }
  EXPECT_EQ(arena.use().total, 0);
  EXPECT_EQ(arena.use().peak_total, 1024);
  arena.restart_peaks();
  EXPECT_EQ(arena.use().peak_total, 0);
}

TEST(PagedTensors, CountOnlyWhatIsHeld) {
  const MemoryArena arena;
  const auto tensors =
      PagedTensors::create(mlp().parameters(), arena, MemoryClass::kGathered).value();
  EXPECT_EQ(arena.use().total, 0);
  tensors.take(0);
  tensors.take(0);
  EXPECT_EQ(arena.use().total, 4 * 32 * 64);
  tensors.tensor(0)[5] = 1;
  tensors.take_all();
  EXPECT_EQ(arena.use().total, 4 * elems(mlp()));
  for (int index = 0; index < tensors.size(); ++index) tensors.drop(index);
  tensors.drop(0);
  EXPECT_EQ(arena.use().total, 0);
}

// What is offered counts no more, and what is written into it afterwards stays.
TEST(PagedTensors, OfferedOnesAreWrittenAgain) {
  const MemoryArena arena;
  const auto tensors =
      PagedTensors::create(mlp().parameters(), arena, MemoryClass::kGathered).value();
  tensors.take_all();
  const std::int64_t all = arena.use().total;
  tensors.offer(0);
  tensors.offer(0);
  EXPECT_FALSE(tensors.held(0));
  EXPECT_EQ(arena.use().total, all - 4 * 32 * 64);
  tensors.take(0);
  std::ranges::fill(tensors.tensor(0), 3.0F);
  EXPECT_EQ(std::ranges::count(tensors.tensor(0), 3.0F), 32 * 64);
  EXPECT_EQ(arena.use().total, all);
}

// At any time, and at the highest one, classes are the total that the allocator counted.
TEST(Memory, Z1_ClassesSumToTheTotal) {
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    TrainingOptions options = adamw(3);
    options.precision = precision;
    options.accumulate = 2;
    const MemoryUse use = use_after(mlp(), options);
    EXPECT_EQ(sum(use.at_peak), use.peak_total);
    EXPECT_GT(use.peak_total, 0);
    EXPECT_GT(use.total, 0);
  }
}

// Closed forms of shapes against what was counted, to the byte.
TEST(Memory, Z1_ThePlanIsWhatIsHeld) {
  for (const std::string optimizer : {"sgd", "adamw", "lamb"}) {
    for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
      for (const std::string recompute : {"none", "sqrt"}) {
        TrainingOptions options = adamw(2);
        options.optimizer.name = optimizer;
        options.precision = precision;
        options.recompute = recompute;
        const MemoryUse use = use_after(cnn(), options);
        RunMemoryQuestion question;
        question.micro_batch = 48;
        question.optimizer = optimizer;
        question.precision = precision;
        question.recompute = recompute;
        EXPECT_EQ(planned(cnn(), question).device, use.peak) << optimizer << " " << recompute;
      }
    }
  }
}

TEST(Memory, Z1_AllOfItGoesWithTheTrainer) {
  TrainingOptions options = adamw(1);
  options.precision = Precision::kBF16;
  options.offload = Offload::kParameters;
  {
    auto trainer = Trainer::create(mlp(), digits(), options);
    ASSERT_TRUE(trainer.has_value());
    SingleProcess alone;
    ASSERT_TRUE(trainer.value().run(alone, nullptr).has_value());
    EXPECT_GT(options.places.device.use().total, 0);
    EXPECT_GT(options.places.host.use().total, 0);
  }
  EXPECT_EQ(options.places.device.use().total, 0);
  EXPECT_EQ(options.places.host.use().total, 0);
}

class EachByItself final : public OwnStrategy {
 public:
  explicit EachByItself(bool each) { demands_.each_micro_batch = each; }
  Demands demands() const override { return demands_; }

 private:
  Demands demands_;
};

// Bytes a parameter with AdamW on one rank: 16 for one micro-batch; of several that are added up
// first 18, or 16 with sums in 16 bits; 20 where averages of each are added up in fp32.
TEST(Memory, Z2_MixedPrecisionAdamTakesSixteenToTwentyBytesAParameter) {
  struct Case {
    int accumulate;
    bool main_gradients;
    bool each;
    std::int64_t gradients;
    std::int64_t sums;
  };
  for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
    for (const Case& c :
         {Case{1, true, false, 2, 0}, Case{1, false, false, 2, 0}, Case{3, true, false, 0, 4},
          Case{3, false, false, 2, 0}, Case{3, true, true, 2, 4}}) {
      TrainingOptions options = adamw(2);
      options.precision = precision;
      options.accumulate = c.accumulate;
      options.main_gradients = c.main_gradients;
      options.offload_chunk = 100;
      const MemoryUse use = use_after(mlp(), options, EachByItself(c.each));
      const std::int64_t params = elems(mlp());
      EXPECT_EQ(use.peak_of(MemoryClass::kParameters), 2 * params);
      EXPECT_EQ(use.peak_of(MemoryClass::kGradients), c.gradients * params);
      EXPECT_EQ(use.peak_of(MemoryClass::kMainGradients), c.sums * params);
      EXPECT_EQ(use.peak_of(MemoryClass::kMaster), 4 * params);
      EXPECT_EQ(use.peak_of(MemoryClass::kMoments), 8 * params);
      // What layers compute with is wide for a layer at a time: fc1 has 64 * 32 + 32 parameters.
      EXPECT_EQ(use.peak_of(MemoryClass::kGathered), 4 * (64 * 32 + 32));
      RunMemoryQuestion question{.micro_batch = 48 / c.accumulate, .accumulate = c.accumulate};
      question.precision = precision;
      question.main_gradients = c.main_gradients;
      question.reduce_each = c.each;
      question.offload_chunk = 100;
      EXPECT_EQ(planned(mlp(), question).device, use.peak);
    }
  }
  // In fp32 there is one form of everything: 16, with any number of micro-batches.
  for (const int accumulate : {1, 3}) {
    TrainingOptions options = adamw(2);
    options.accumulate = accumulate;
    const MemoryUse use = use_after(mlp(), options);
    EXPECT_EQ(use.peak_of(MemoryClass::kParameters) + use.peak_of(MemoryClass::kGradients) +
                  use.peak_of(MemoryClass::kMoments),
              16 * elems(mlp()));
    RunMemoryQuestion question{.micro_batch = 48 / accumulate, .accumulate = accumulate};
    EXPECT_EQ(planned(mlp(), question).device, use.peak);
  }
}

// A rank of N sees 1/N of the batch, but for blocks' ends on cache lines; micro-batches likewise.
TEST(Memory, T6_ActivationsShrinkWithTheRanks) {
  constexpr std::int64_t kBlocks = 7;  // flatten's, fc1's, relu1's ... inputs, and the output
  const auto activations = [](int ranks, int accumulate) {
    TrainingOptions options = adamw(0);
    options.batch = 256;
    options.accumulate = accumulate;
    options.ranks = ranks;
    options.places = {};
    const auto trainer = Trainer::create(mlp(), digits(), options);
    EXPECT_TRUE(trainer.has_value());
    return options.places.device.use().now_of(MemoryClass::kActivations);
  };
  const std::int64_t whole = activations(1, 1);
  EXPECT_GE(whole, 256 * 4 * (64 + 64 + 32 + 32 + 16 + 16 + 10));
  for (const int ranks : {2, 4, 8}) {
    for (const int accumulate : {1, 4, 32}) {
      const int parts = ranks * accumulate;
      EXPECT_LE(std::abs(activations(ranks, accumulate) * parts - whole), 64 * kBlocks * parts)
          << ranks << " ranks, " << accumulate << " micro-batches";
    }
  }
}

// A language model's outputs are most of it: samples x tokens x words, of which there is room for
// one micro-batch and no more, in the account as in the arena.
TEST(Memory, T6_ActivationsOfASampleAreThoseOfASample) {
  constexpr std::int64_t s = 8, h = 8, v = 5000;
  ModelOptions options{"gpt", {}, h};
  options.layers = 1;
  options.heads = 2;
  const auto model = make_model<float>(options, {s, 1, 1}, v);
  ASSERT_TRUE(model.has_value());
  RunMemoryQuestion question;
  question.micro_batch = 1;
  const RunMemory plan = planned(model.value(), question);
  // The outputs' level, and two of derivatives: no other level is near as wide.
  EXPECT_LT(of(plan.device, MemoryClass::kActivations), 4 * (s * v + 100 * s * h));
  EXPECT_LT(of(plan.device, MemoryClass::kWorkspace), 4 * (2 * s * v + 100 * s * h));
}

TEST(Memory, T7_EveryRankHoldsTheWholeModel) {
  for (const int ranks : {1, 2, 4, 8}) {
    TrainingOptions options = adamw(0);
    options.ranks = ranks;
    options.places = {};
    const auto trainer = Trainer::create(mlp(), digits(), options);
    ASSERT_TRUE(trainer.has_value());
    EXPECT_EQ(options.places.device.use().now_of(MemoryClass::kParameters), 4 * elems(mlp()));
  }
}

// By hand: the rows of a micro-batch, of every level's width, each on cache lines of its own.
TEST(Memory, Z8_ActivationsOfTheMlpByHand) {
  RunMemoryQuestion question;
  question.micro_batch = 48;
  const std::int64_t widths = 64 + 64 + 32 + 32 + 16 + 16 + 10;
  EXPECT_EQ(of(planned(mlp(), question).device, MemoryClass::kActivations), 48 * 4 * widths);
  EXPECT_EQ(use_after(mlp(), adamw(1)).peak_of(MemoryClass::kActivations), 48 * 4 * widths);
}

// One decoder block of width h, s tokens, a heads: in fp32 values of a sample its residual stream
// enters twice (2 s h), and kept are inside attention norm, qkv, heads, out and inside the MLP
// norm, 4 h, 4 h, out, with 2 s for each norm's statistics and 2 a s of the scores.
TEST(Memory, Z8_ActivationsOfADecoderByHand) {
  constexpr std::int64_t s = 6, h = 8, a = 2, v = 7, rows = 128;
  ModelOptions options{"gpt", {}, h};
  options.layers = 3;
  options.heads = a;
  const auto model = make_model<float>(options, {s, 1, 1}, v);
  ASSERT_TRUE(model.has_value());
  RunMemoryQuestion question;
  question.micro_batch = rows;
  const std::int64_t attention = s * h + 3 * s * h + s * h + 2 * s + 2 * a * s;
  const std::int64_t mlp = s * h + 4 * s * h + 4 * s * h + 2 * s;
  const std::int64_t ends = s + s * h + s * h + 2 * s + s * v;  // ids, last norm's input and output
  const std::int64_t block = 2 * s * h + attention + mlp;
  EXPECT_EQ(of(planned(model.value(), question).device, MemoryClass::kActivations),
            4 * rows * (3 * block + ends));
}

TEST(Memory, WhatNoRunHasIsRefused) {
  RunMemoryQuestion question;
  question.optimizer = "adagrad";
  EXPECT_FALSE(run_memory(mlp(), question).has_value());
  question.optimizer = "sgd";
  question.recompute = "some";
  EXPECT_FALSE(run_memory(mlp(), question).has_value());
}

}  // namespace
}  // namespace gradwire::memory_test
