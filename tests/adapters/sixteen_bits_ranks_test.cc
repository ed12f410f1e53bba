// Data parallelism whose gradients are held and sent in 16 bits: row Z2 of the trainer's acceptance
// table on several ranks, through real buckets and compressors.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "adapters/trainer/compressor_check.h"
#include "tests/adapters/sharded_runs.h"

namespace gradwire::testing::sixteen_bits_ranks_test {
namespace {

Setting narrow(int ranks, const std::string& compressor, Precision precision) {
  Setting setting;
  setting.ranks = ranks;
  setting.compressor = compressor;
  setting.training = twenty_steps("adamw", 1);
  setting.training.precision = precision;
  return setting;
}

// The same run, whose gradients are handed over in fp32: a worker's are clipped, none of which is
// so long.
Setting in_fp32(Setting setting) {
  setting.training.clip_worker = 1e30;
  return setting;
}

// Replicas stay equal (train() compares them), uncompressed half as much travels as in fp32, and
// what the run comes to is close.
TEST(SixteenBitsOfRanks, TrainAsInFp32) {
  for (const std::string compressor :
       {"none", "cast:fp16,min_elems=0,dense_1d=false",
        "qsgd:bits=8,ef=ef14,min_elems=0,dense_1d=false", "topk:ratio=0.1,ef=ef14"}) {
    for (const int ranks : {2, 3}) {
      Setting setting = narrow(ranks, compressor, Precision::kF16);
      setting.training.loss_scale = LossScaleOptions::parse("dynamic").value();
      const std::vector<Outcome> stored = train(setting);
      const std::vector<Outcome> kept = train(in_fp32(setting));
      const auto sent = [](const std::vector<Outcome>& of) {
        std::uint64_t bytes = 0;
        for (const Outcome& outcome : of) bytes += outcome.steps_wire_bytes;
        return bytes;
      };
      if (compressor == "none") {
        EXPECT_EQ(2 * sent(stored), sent(kept));
      } else if (compressor.find("dense_1d") != std::string::npos) {
        EXPECT_EQ(sent(stored), sent(kept)) << compressor;
      }
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

TEST(SixteenBitsOfRanks, WhatTravelsWithTheScale) {
  for (const char* compressor :
       {"none", "cast:fp16", "cast:bf16,combine=sra", "*.bias=none;*=none"}) {
    EXPECT_TRUE(carries_scale(compressor)) << compressor;
  }
  for (const char* compressor :
       {"qsgd:bits=8", "topk:ratio=0.1,ef=ef14", "cast:fp16,ef=ef14", "topk:ratio=0.1|cast:fp16",
        "*.bias=none;*=signsgd", "none:intra_node=absmax"}) {
    EXPECT_FALSE(carries_scale(compressor)) << compressor;
  }
}

// Residuals are of gradients without the scale: a run with another power of two, which no gradient
// overflows or vanishes by, has the same bits. So has one whose scale changes on its way.
TEST(SixteenBitsOfRanks, NoScaleIsLeftInWhatFeedbackKeeps) {
  for (const int stage : {0, 2}) {
    Setting setting = narrow(2, "qsgd:bits=4,ef=ef14,min_elems=0,dense_1d=false", Precision::kBF16);
    setting.stage = stage;
    setting.training.loss_scale = LossScaleOptions::parse("1024").value();
    const Flat wanted = train(setting)[0].params;
    setting.training.loss_scale = LossScaleOptions::parse("65536").value();
    EXPECT_EQ(train(setting)[0].params, wanted) << stage;
    setting.training.loss_scale = LossScaleOptions::parse("dynamic").value();
    setting.training.loss_scale.initial = 64;
    setting.training.loss_scale.growth_every = 5;
    EXPECT_EQ(train(setting)[0].params, wanted) << stage;
  }
}

// One step of plain descent by 1: each parameter moves by its mean, rounded to bf16.
TEST(SixteenBitsOfRanks, TheStepIsOfTheRoundedMean) {
  Setting setting = narrow(3, "none", Precision::kBF16);
  setting.training.optimizer.name = "sgd";
  setting.training.momentum = 0;
  setting.training.lr = 1;
  setting.training.steps = 0;
  const Flat start = train(setting)[0].params;
  setting.training.steps = 1;
  const Flat stored = train(setting)[0].params;
  const Flat kept = train(in_fp32(setting))[0].params;
  EXPECT_NE(stored, kept);
  for (std::size_t i = 0; i < start.size(); ++i) {
    const float by = kept[i] - start[i];
    ASSERT_NEAR(stored[i], kept[i], std::abs(by) * 0x1p-8F + std::abs(start[i]) * 0x1p-22F) << i;
  }
}

// 2 bytes of a gradient stay between steps, and are what takes memory of them; from stage 2 on
// nothing does but the own part.
TEST(SixteenBitsOfRanks, PagesOfAWideModelGoBack) {
  for (const int stage : {0, 2}) {
    Setting setting = narrow(2, "none", Precision::kBF16);
    setting.stage = stage;
    setting.width = 1024;
    setting.bucket_bytes = 1 << 16;
    setting.training.steps = 2;
    const auto all = static_cast<std::size_t>(2 * model_elems(setting.width));
    for (const Outcome& outcome : train(setting)) {
      EXPECT_LT(outcome.resident, (stage == 0 ? all : 0) + 10U * 4096) << "ends of tensors";
    }
  }
}

}  // namespace
}  // namespace gradwire::testing::sixteen_bits_ranks_test
