// The accounts of a training run's memory: rows Z2 to Z6 and Z8 of the trainer's acceptance table.
#include "trainer/accounts/training_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/support/fails.h"

namespace gradwire::training_memory_test {
namespace {

StateBytes mixed(bool main_grads) {
  const auto bytes = state_bytes("fp16", "adamw", main_grads);
  EXPECT_TRUE(bytes.has_value());
  return bytes.has_value() ? bytes.value() : StateBytes{};
}

MemoryQuestion asked(int stage, std::int64_t ranks, bool main_grads = true) {
  MemoryQuestion question;
  question.params = 1e9;
  question.bytes = mixed(main_grads);
  question.stage = stage;
  question.data_ranks = ranks;
  return question;
}

double per_param(const MemoryQuestion& question) {
  return training_memory(question).total() / question.params;
}

TEST(TrainingMemory, Z2_TwentyBytesForAParameterOfMixedPrecisionAdam) {
  EXPECT_DOUBLE_EQ(mixed(true).total(), 20);
  EXPECT_DOUBLE_EQ(mixed(true).optimizer(), 16);
  EXPECT_DOUBLE_EQ(mixed(false).total(), 16);
  EXPECT_DOUBLE_EQ(training_memory(asked(0, 1)).total(), 20e9);
  const auto plain = state_bytes("fp32", "adamw", true);
  ASSERT_TRUE(plain.has_value());
  EXPECT_DOUBLE_EQ(plain.value().total(), 16);
  const auto descent = state_bytes("fp32", "sgd", true);
  ASSERT_TRUE(descent.has_value());
  EXPECT_DOUBLE_EQ(descent.value().total(), 8);
}

TEST(TrainingMemory, Z3_StageOneShardsTheOptimizer) {
  EXPECT_DOUBLE_EQ(per_param(asked(1, 2)), 12);
  EXPECT_DOUBLE_EQ(per_param(asked(1, 4)), 8);
  EXPECT_DOUBLE_EQ(per_param(asked(1, 8)), 6);
  EXPECT_DOUBLE_EQ(per_param(asked(1, 16)), 5);
}

TEST(TrainingMemory, Z4_StageTwoShardsGradientsToo) {
  EXPECT_DOUBLE_EQ(per_param(asked(2, 2)), 11);
  EXPECT_DOUBLE_EQ(per_param(asked(2, 4)), 6.5);
  EXPECT_DOUBLE_EQ(per_param(asked(2, 8)), 4.25);
  EXPECT_DOUBLE_EQ(per_param(asked(2, 16)), 3.125);
}

TEST(TrainingMemory, Z5_StageThreeShardsEverythingButWhatIsGathered) {
  EXPECT_DOUBLE_EQ(per_param(asked(3, 4)), 5);
  MemoryQuestion question = asked(3, 4);
  question.gathered_params = 1e8;
  EXPECT_DOUBLE_EQ(training_memory(question).total(), 5e9 + 2e8);
  question.stage = 2;  // nothing is gathered where nothing is apart
  EXPECT_DOUBLE_EQ(training_memory(question).total(), 6.5e9);
}

TEST(TrainingMemory, Z6_LimitsOfTheSavings) {
  const std::int64_t many = std::int64_t{1} << 40;
  EXPECT_NEAR(saving(asked(1, many)), 5, 1e-9);
  EXPECT_NEAR(saving(asked(2, many)), 10, 1e-9);
  EXPECT_NEAR(saving(asked(1, many, false)), 4, 1e-9);
  EXPECT_NEAR(saving(asked(2, many, false)), 8, 1e-9);
  for (const std::int64_t ranks : {2, 64, 1024}) {
    EXPECT_DOUBLE_EQ(saving(asked(3, ranks)), static_cast<double>(ranks));
  }
}

// The published bars of a model of 10 billion parameters, in whole 10^9 bytes.
TEST(TrainingMemory, Z8_ActivationsOfATransformer) {
  constexpr std::array<std::int64_t, 6> kGigabytes{14, 29, 59, 119, 238, 476};
  TransformerShape shape{.layers = 48, .width = 4096, .heads = 32, .sequence = 1024};
  std::int64_t batch = 1;
  for (const std::int64_t gigabytes : kGigabytes) {
    shape.batch = batch;
    EXPECT_EQ(static_cast<std::int64_t>(activation_bytes(shape, Recompute::kNone, 1) / 1e9),
              gigabytes)
        << "batch " << batch;
    batch *= 2;
  }
}

TEST(TrainingMemory, Z8_TensorRanksAndRecomputingHoldLess) {
  const TransformerShape shape{.layers = 2, .width = 8, .heads = 4, .sequence = 16, .batch = 3};
  const double sbh = 16 * 3 * 8;
  const double scores = 5.0 * 4 * 16 / 8;
  EXPECT_DOUBLE_EQ(activation_bytes(shape, Recompute::kNone, 1), 2 * sbh * (34 + scores));
  EXPECT_DOUBLE_EQ(activation_bytes(shape, Recompute::kNone, 4), 2 * sbh * (10 + 6 + scores / 4));
  EXPECT_DOUBLE_EQ(activation_bytes(shape, Recompute::kSelective, 1), 2 * sbh * 34 + sbh * scores);
  EXPECT_DOUBLE_EQ(activation_bytes(shape, Recompute::kFull, 1), 2 * sbh * 2 + sbh * (34 + scores));
}

// What stands between the shared layers is divided too: all of a layer, by t.
TEST(TrainingMemory, SequenceParallelismDividesTheRest) {
  const TransformerShape shape{.layers = 2, .width = 8, .heads = 4, .sequence = 16, .batch = 3};
  const double sbh = 16 * 3 * 8;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    const double alone = activation_bytes(shape, recompute, 1);
    EXPECT_DOUBLE_EQ(activation_bytes(shape, recompute, 1, true), alone);
    EXPECT_DOUBLE_EQ(activation_bytes(shape, recompute, 4, true), alone / 4);
  }
  EXPECT_DOUBLE_EQ(activation_bytes(shape, Recompute::kNone, 4) -
                       activation_bytes(shape, Recompute::kNone, 4, true),
                   2 * sbh * 10 * 3 / 4);
}

// GPT-2 small: 124,439,808 parameters with a context of 1,024 and 50,257 tokens.
TEST(TrainingMemory, ParametersOfATransformer) {
  const TransformerShape shape{
      .layers = 12, .width = 768, .heads = 12, .sequence = 1024, .vocabulary = 50257};
  EXPECT_DOUBLE_EQ(transformer_params(shape), 124439808);
  EXPECT_DOUBLE_EQ(largest_layer(shape), (50257.0 + 1024) * 768);
  EXPECT_DOUBLE_EQ(largest_neighbours(shape), (50257.0 + 1024 + 4 * 768 + 6) * 768);
}

TEST(TrainingMemory, UnknownNamesAreRefused) {
  EXPECT_EQ(state_bytes("fp8", "adamw", true).error().code(), Code::kInvalidArgument);
  EXPECT_THAT(state_bytes("fp32", "adam", true).error(), fails(Code::kInvalidArgument, "adam"));
  EXPECT_FALSE(recompute_of("some").has_value());
}

}  // namespace
}  // namespace gradwire::training_memory_test
