// Data parallelism that keeps averages in 16 bits alone: row Z2 of the trainer's acceptance table
// on several ranks, through real buckets and compressors.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/adapters/sharded_runs.h"

namespace gradwire::testing::stored_gradients_ranks_test {
namespace {

Setting narrow(int ranks, const std::string& compressor, Precision precision) {
  Setting setting;
  setting.ranks = ranks;
  setting.compressor = compressor;
  setting.training = twenty_steps("adamw", 1);
  setting.training.precision = precision;
  setting.training.main_gradients = false;
  return setting;
}

// Replicas stay equal (train() compares them), as much travels as with sums in fp32, and what the
// run comes to is close.
TEST(StoredGradientsOfRanks, TrainAsWithMainGradients) {
  for (const std::string compressor :
       {"none", "qsgd:bits=8,ef=ef14,min_elems=0,dense_1d=false", "topk:ratio=0.1,ef=ef14"}) {
    for (const int ranks : {2, 3}) {
      Setting setting = narrow(ranks, compressor, Precision::kF16);
      setting.training.loss_scale = LossScaleOptions::parse("dynamic").value();
      const std::vector<Outcome> stored = train(setting);
      setting.training.main_gradients = true;
      const std::vector<Outcome> kept = train(setting);
      EXPECT_EQ(stored[0].wire_bytes, kept[0].wire_bytes) << compressor;
      EXPECT_NE(stored[0].params, kept[0].params) << "the mean was rounded";
      double difference = 0;
      double size = 0;
      for (std::size_t i = 0; i < kept[0].params.size(); ++i) {
        difference += std::pow(stored[0].params[i] - kept[0].params[i], 2);
        size += std::pow(kept[0].params[i], 2);
      }
      EXPECT_LT(std::sqrt(difference), 0.01 * std::sqrt(size)) << compressor;
    }
  }
}

// One step of plain descent by 1: each parameter moves by its mean, rounded to bf16.
TEST(StoredGradientsOfRanks, TheStepIsOfTheRoundedMean) {
  Setting setting = narrow(3, "none", Precision::kBF16);
  setting.training.optimizer.name = "sgd";
  setting.training.momentum = 0;
  setting.training.lr = 1;
  setting.training.steps = 0;
  const Flat start = train(setting)[0].params;
  setting.training.steps = 1;
  const Flat stored = train(setting)[0].params;
  setting.training.main_gradients = true;
  const Flat kept = train(setting)[0].params;
  EXPECT_NE(stored, kept);
  for (std::size_t i = 0; i < start.size(); ++i) {
    const float by = kept[i] - start[i];
    ASSERT_NEAR(stored[i], kept[i], std::abs(by) * 0x1p-8F + std::abs(start[i]) * 0x1p-22F) << i;
  }
}

// Between steps 2 bytes of a gradient stay; on their way are at most so many buckets and the tensor
// that was just written.
TEST(StoredGradientsOfRanks, Z2_SixteenBytesOfAParameter) {
  for (const int accumulate : {1, 2}) {
    Setting setting = narrow(2, "none", Precision::kBF16);
    setting.training.accumulate = accumulate;
    setting.training.steps = 3;
    const std::int64_t elems = model_elems(setting.width);
    for (const Outcome& outcome : train(setting)) {
      EXPECT_EQ(outcome.device.now_of(MemoryClass::kParameters) +
                    outcome.device.now_of(MemoryClass::kGradients) +
                    outcome.device.now_of(MemoryClass::kMaster) +
                    outcome.device.now_of(MemoryClass::kMoments),
                16 * elems);
      EXPECT_EQ(outcome.device.now_of(MemoryClass::kMainGradients), 0);
      EXPECT_LE(outcome.device.peak_of(MemoryClass::kMainGradients),
                3 * setting.bucket_bytes + 2 * 4 * 64 * 32);
    }
  }
}

TEST(StoredGradientsOfRanks, PagesOfAWideModelGoBack) {
  Setting setting = narrow(2, "none", Precision::kBF16);
  setting.width = 1024;
  setting.bucket_bytes = 1 << 16;
  setting.training.steps = 2;
  for (const Outcome& outcome : train(setting)) {
    EXPECT_LT(outcome.resident, 10U * 4096) << "ends of tensors";
  }
}

}  // namespace
}  // namespace gradwire::testing::stored_gradients_ranks_test
