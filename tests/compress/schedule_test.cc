// Keys that follow the step: what a schedule's text means, and that each step is coded as with the
// value that it has then.
#include "compress/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::schedule_test {
namespace {

using gradwire::testing::CoderRanks;
using gradwire::testing::make;

std::vector<ScheduleStage> stages(const std::string& text) {
  const auto parsed = parse_schedule(text);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message();
  return parsed.has_value() ? parsed.value() : std::vector<ScheduleStage>();
}

Status wrong(const std::string& text) { return parse_schedule(text).error(); }

TEST(Schedule, ValuesHoldFromTheirStepOn) {
  const std::vector<ScheduleStage> wanted{{0, "0.25"}, {93, "0.0625"}, {186, "0.01"}};
  EXPECT_EQ(stages("0.25@0/0.0625@93/0.01@186"), wanted);
  EXPECT_EQ(stages("0.25/0.0625@93/0.01@186"), wanted);
  EXPECT_EQ(stages("8@0/8@5/4@9"), (std::vector<ScheduleStage>{{0, "8"}, {9, "4"}}));
}

TEST(Schedule, ShapesBecomeStagesOfAlmostEqualLength) {
  // Between integers all are: 1, 0.75, 0.5 and 0.25 round to 1, 1, 1 (away from 0) and 0.
  EXPECT_EQ(stages("linear(1..0@10/4)"), (std::vector<ScheduleStage>{{0, "1"}, {7, "0"}}));
  // 1 - 0.25 i from step floor(10 i / 4) on.
  EXPECT_EQ(
      stages("linear(1..0.0@10/4)"),
      (std::vector<ScheduleStage>{{0, "1"}, {2, "0.75"}, {5, "0.5"}, {7, "0.25"}, {10, "0.0"}}));
  EXPECT_EQ(stages("exp(16..1@4)"),
            (std::vector<ScheduleStage>{{0, "16"}, {1, "8"}, {2, "4"}, {3, "2"}, {4, "1"}}));
  EXPECT_EQ(stages("exp(0.25..0.001@1000)").size(), 33u);
}

// Lin et al.: 25 %, 6.25 %, 1.5625 %, 0.4 %, 0.1 %.
TEST(Schedule, HoldsTheWarmUpOfDgc) {
  const auto all = stages("exp(0.25..0.001@372/4)");
  ASSERT_EQ(all.size(), 5u);
  const double wanted[] = {0.25, 0.0625, 0.015625, 0.004, 0.001};
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].first, 93 * i);
    EXPECT_NEAR(std::stod(all[i].value), wanted[i], 0.02 * wanted[i]);
  }
}

TEST(Schedule, WrongTextsAreAnsweredWithTheFormWanted) {
  for (const std::string text :
       {"0.1@1/0.2@2", "0.1@0/0.2", "0.1@0/0.2@0", "a@0", "0.1@x", "0.1@-1", "exp(1..0@5)",
        "exp(1..2@0)", "exp(1..2@5/6)", "exp(1..2@5/2/2)", "cosine(1..2@5)", "exp(1..2@5",
        "exp(1@5)", "linear(..2@5)", "linear(1..2@999/64)", "@"}) {
    EXPECT_THAT(wrong(text), fails(Code::kInvalidArgument, "'" + text + "'", "VALUE/VALUE@STEP/"));
  }
  std::string many = "1";
  for (int i = 1; i <= 64; ++i) many += "/" + std::to_string(i % 2) + "@" + std::to_string(i);
  EXPECT_THAT(wrong(many), fails(Code::kInvalidArgument, "65 values", "64"));
}

Status refusal(std::string_view spec) { return Registry::builtin().make(spec).error(); }

const Shape kShape = Shape::matrix(40, 25);

std::vector<std::vector<float>> gradients(int step) {
  std::vector<std::vector<float>> all(2, std::vector<float>(1000));
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (std::size_t i = 0; i < 1000; ++i) {
      const auto mixed = (i * 7919 + r * 131 + static_cast<std::size_t>(step) * 17) % 1009;
      all[r][i] = static_cast<float>(mixed) - 500;
    }
  }
  return all;
}

TEST(Scheduled, PayloadsHaveTheLengthOfTheirStep) {
  const auto compressor = make("topk:ratio=0.25@0/0.0625@2/0.01@4");
  EXPECT_EQ(compressor->spec(), "topk:ratio=0.25@0/0.0625@2/0.01@4");
  EXPECT_EQ(compressor->max_payload_bytes(kShape, DType::kF32, 0), 250u * 8);
  EXPECT_FALSE(compressor->traits().fixed_payload);
  EXPECT_NEAR(compressor->bound(kShape).value, 0.01, 1e-12);
  auto ranks = CoderRanks<float>::open(*compressor, kShape, 2).value();
  const std::size_t chosen[] = {250, 250, 63, 63, 10, 10};  // ceil(62.5) = 63
  for (int step = 0; step < 6; ++step) {
    const auto outcome = ranks.step(gradients(step), static_cast<std::uint64_t>(step));
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.bytes[0][1].size(), 8 * chosen[step]) << step;
  }
}

// Step by step the bytes and means of a coder of that step's own value, whose state is carried by
// hand.
TEST(Scheduled, EveryStepIsCodedAsByItsValueAlone) {
  const auto scheduled = make("signum:beta=0.5@0/0.9@2/0.5@3");
  const auto half = make("signum:beta=0.5");
  const auto slow = make("signum:beta=0.9");
  auto ranks = CoderRanks<float>::open(*scheduled, kShape, 2).value();
  std::vector<std::vector<float>> momentum(2, std::vector<float>(1000));
  for (int step = 0; step < 5; ++step) {
    const auto number = static_cast<std::uint64_t>(step);
    auto alone = CoderRanks<float>::open(step == 2 ? *slow : *half, kShape, 2).value();
    for (int r = 0; r < 2; ++r) {
      auto& kept = momentum[static_cast<std::size_t>(r)];
      const auto into = elements<float>(alone.coder(r).state().front().tensor);
      std::copy(kept.begin(), kept.end(), into.begin());
    }
    const auto wanted = alone.step(gradients(step), number);
    const auto seen = ranks.step(gradients(step), number);
    ASSERT_TRUE(seen.status.ok()) << seen.status.message();
    EXPECT_EQ(seen.bytes, wanted.bytes) << step;
    EXPECT_EQ(seen.mean, wanted.mean) << step;
    for (int r = 0; r < 2; ++r) {
      const auto from = elements<float>(alone.coder(r).state().front().tensor);
      momentum[static_cast<std::size_t>(r)].assign(from.begin(), from.end());
    }
  }
}

// A step may be repeated, and training may go back: the step alone decides.
TEST(Scheduled, TheStepDecidesInAnyOrder) {
  const auto compressor = make("topk:k=100@0/10@5");
  auto ranks = CoderRanks<float>::open(*compressor, kShape, 1).value();
  const std::vector<std::vector<float>> gradient{gradients(0)[0]};
  for (const std::uint64_t step : {5U, 4U, 1000000U, 0U, 5U}) {
    EXPECT_EQ(ranks.step(gradient, step).bytes[0][0].size(), step < 5 ? 800u : 80u) << step;
  }
}

TEST(Scheduled, TheSecondStageMayFollowTheStepToo) {
  const auto compressor = make("topk:k=16|qsgd:bits=8@0/4@1");
  EXPECT_EQ(compressor->spec(), "topk:k=16|qsgd:bits=8@0/4@1");
  auto ranks = CoderRanks<float>::open(*compressor, kShape, 2).value();
  EXPECT_EQ(ranks.step(gradients(0), 0).bytes[0][0].size(), 64u + 4 + 16);
  EXPECT_EQ(ranks.step(gradients(1), 1).bytes[0][0].size(), 64u + 4 + 8);
}

// A quantiser whose bits follow the step went by gather, n/2 times the bytes of sra.
TEST(Scheduled, SlicesAreThoseOfTheStepsValue) {
  const auto scheduled = make("qsgd:bits=8@0/4@3,bucket=64");
  EXPECT_TRUE(scheduled->traits().elementwise);
  const Compressor::Placement where{.rank = 1, .size = 3, .seed = 4, .tensor = 5};
  auto format = scheduled->open_slices(kShape, where).value();
  const std::vector<float> x = gradients(1)[0];
  const ConstTensorView whole = const_view_of<float>(std::span<const float>(x));
  for (const std::uint64_t step : {0U, 2U, 3U, 9U, 1U}) {
    auto alone = make(step < 3 ? "qsgd:bits=8,bucket=64" : "qsgd:bits=4,bucket=64")
                     ->open_slices(kShape, where);
    EXPECT_TRUE(format->turn_to(step));
    // ceil(500 / 64) norms of four bytes, and 500 codes.
    EXPECT_EQ(format->bytes(500, 0), 8u * 4 + (step < 3 ? 500u : 250u)) << step;
    const Slice slice{.step = step, .tensor = 5, .rank = 1, .first = 128};
    std::vector<std::byte> seen(format->bytes(500, 0));
    std::vector<std::byte> wanted(alone.value()->bytes(500, 0));
    ASSERT_TRUE(format->pack(whole.slice(128, 500), slice, seen, {}).has_value());
    ASSERT_TRUE(alone.value()->pack(whole.slice(128, 500), slice, wanted, {}).has_value());
    EXPECT_EQ(seen, wanted) << step;
  }
}

// Where every value may be cut; a majority's voices and chosen elements have no slices.
TEST(Scheduled, OnlyElementwiseMethodsKeepSlices) {
  const auto buckets = make("qsgd:bits=4,bucket=64@0/96@3");
  EXPECT_EQ(buckets->open_slices(kShape, {}).value()->seam(0), 192);
  EXPECT_FALSE(make("topk:ratio=0.25@0/0.1@4")->traits().elementwise);
  EXPECT_EQ(make("topk:ratio=0.25@0/0.1@4")->open_slices(kShape, {}).error().code(),
            Code::kUnsupported);
}

TEST(Scheduled, BoundsAreThoseOfTheWeakestValue) {
  const auto both = make("qsgd:bits=8@0/2@9");
  EXPECT_EQ(both->bound(kShape).value, make("qsgd:bits=2")->bound(kShape).value);
  EXPECT_TRUE(both->traits().unbiased);
}

TEST(Scheduled, RefusalsSayWhatCannotFollowTheStep) {
  constexpr Code kInvalid = Code::kInvalidArgument;
  EXPECT_THAT(refusal("topk:ratio=0.1@0/2@5"), fails(kInvalid, "'ratio'", "'2'"));
  EXPECT_THAT(refusal("topk:ratio=0.1@5"), fails(kInvalid, "'ratio'", "'0.1@5'", "step 0"));
  EXPECT_THAT(refusal("topk:k=4@0/2@5|qsgd:bits=8@0/4@1"), fails(kInvalid, "2 keys", "step"));
  EXPECT_THAT(refusal("topk:rate=0.1@0/0.2@5"), fails(kInvalid, "'topk'", "unknown key 'rate'"));
  const auto rank = make("powersgd:rank=4@0/1@10");
  const auto opened = rank->open(kShape, {});
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error(), fails(kInvalid, "powersgd:rank=4@0/1@10", "rank=4", "rank=1"));
}

}  // namespace
}  // namespace gradwire::schedule_test
