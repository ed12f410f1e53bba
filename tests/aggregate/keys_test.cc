#include "aggregate/plan/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/fails.h"
#include "tests/support/names.h"

namespace gradwire::keys_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

Result<SplitSpec> split(const std::string& text) {
  const auto chain = parse_spec(text);
  EXPECT_TRUE(chain.has_value()) << text;
  return split_spec(chain.value());
}

TEST(Keys, DefaultsAreThoseOfTheHeader) {
  const auto result = split("topk:ratio=0.01");
  ASSERT_TRUE(result.has_value());
  const AggregatorKeys& keys = result.value().keys;
  EXPECT_FALSE(keys.error_feedback);
  EXPECT_TRUE(keys.scale_feedback);
  EXPECT_EQ(keys.combine, Combine::kAuto);
  EXPECT_EQ(keys.min_elems, 1024);
  EXPECT_TRUE(keys.dense_1d);
  EXPECT_EQ(keys.warmup_steps, 0);
  EXPECT_FALSE(keys.seed.has_value());
  EXPECT_EQ(to_string(result.value().method), "topk:ratio=0.01");
}

TEST(Keys, AreTakenOutAndTheMethodKeepsItsOwnInOrder) {
  const auto result = split(
      "qsgd:bits=4,ef=ef14,ef_scale=none,bucket=64,combine=gather,min_elems=0,dense_1d=false,"
      "warmup_steps=7,seed=9");
  ASSERT_TRUE(result.has_value());
  const AggregatorKeys& keys = result.value().keys;
  EXPECT_TRUE(keys.error_feedback);
  EXPECT_FALSE(keys.scale_feedback);
  EXPECT_EQ(keys.combine, Combine::kGather);
  EXPECT_EQ(keys.min_elems, 0);
  EXPECT_FALSE(keys.dense_1d);
  EXPECT_EQ(keys.warmup_steps, 7);
  EXPECT_EQ(keys.seed, 9u);
  EXPECT_EQ(to_string(result.value().method), "qsgd:bits=4,bucket=64");
}

TEST(Keys, FeedbackHasItsOwn) {
  const auto feedback = [](const std::string& text) {
    const auto result = split(text);
    EXPECT_TRUE(result.has_value()) << result.error().message();
    return result.value().keys.feedback;
  };
  const FeedbackOptions loco = feedback("qsgd:bits=4,ef=loco,ef_beta=0.5,ef_reset=7");
  EXPECT_EQ(loco.kind, FeedbackKind::kLoco);
  EXPECT_EQ(loco.storage, ResidualStorage::kInt8);
  EXPECT_EQ(loco.beta, 0.5);
  EXPECT_EQ(loco.reset, 7);
  EXPECT_EQ(feedback("qsgd:bits=4,ef=loco,ef_beta=0").beta, 0);  // loco.h: 0 <= beta < 1
  EXPECT_EQ(feedback("none:ef=ef14").storage, ResidualStorage::kFull);
  EXPECT_EQ(feedback("none:ef=ef14,ef_storage=bf16").storage, ResidualStorage::kBf16);
  EXPECT_EQ(feedback("none:ef=ef21").kind, FeedbackKind::kEf21);
  EXPECT_EQ(feedback("none:ef=ef21_sgdm,ef_eta=0.25").eta, 0.25);
  EXPECT_EQ(feedback("none:ef=ef21_sgdm").eta, 0.1);
}

TEST(Keys, FeedbackKeysOfAnotherKindAreRefused) {
  for (const std::string text :
       {"none:ef_storage=bf16", "none:ef=ef21,ef_storage=int8", "none:ef=ef21,ef_eta=0.5",
        "none:ef=ef14,ef_beta=0.5", "none:ef=ef14,ef_reset=9", "none:ef=ef21,ef_rescale_lr=true"}) {
    const auto result = split(text);
    ASSERT_FALSE(result.has_value()) << text;
    const std::string key = text.substr(text.find("ef_"));
    EXPECT_THAT(result.error(), fails(kInvalid, key.substr(0, key.find('=')), "ef"));
  }
}

TEST(Keys, BareValuesBelongToTheMethod) {
  const auto result = split("cast:bf16,ef=none");
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(to_string(result.value().method), "cast:bf16");
}

TEST(Keys, OldNamesMeanTheSameAndAreReported) {
  const auto old_names = split("topk:k=3,inner=cast:bf16,between=nccl");
  const auto present = split("topk:k=3,intra_node=cast:bf16,inter_node=nccl");
  ASSERT_TRUE(old_names.has_value() && present.has_value());
  EXPECT_EQ(old_names.value().keys.inner, "cast:bf16");
  EXPECT_EQ(old_names.value().keys.between, Between::kNccl);
  EXPECT_EQ(present.value().keys.inner, "cast:bf16");
  EXPECT_EQ(present.value().keys.between, Between::kNccl);
  EXPECT_EQ(to_string(old_names.value().method), "topk:k=3");
  EXPECT_TRUE(present.value().old_keys.empty());
  ASSERT_EQ(old_names.value().old_keys.size(), 2U);
  EXPECT_THAT(notice_of(old_names.value().old_keys[0]), tells("'inner'", "'intra_node'"));
  EXPECT_THAT(notice_of(old_names.value().old_keys[1]), tells("'between'", "'inter_node'"));
  const auto twice = split("topk:k=3,inner=none,intra_node=none");
  ASSERT_FALSE(twice.has_value());
  EXPECT_THAT(twice.error(), fails(kInvalid, "intra_node", "twice", "inner"));
}

TEST(Keys, PresentNamesAreWrittenForOldOnesAloneInTheFirstStage) {
  EXPECT_EQ(with_present_keys("qsgd:4, inner=none , between=nccl"),
            "qsgd:4,intra_node=none,inter_node=nccl");
  EXPECT_EQ(with_present_keys("inner=topk:k=1,inner=none; *=none"),  // a parameter named "inner"
            "inner=topk:k=1,intra_node=none;*=none");
  for (const std::string same : {"qsgd: bits=4, intra_node=none", "inner=none;*=cast:bf16", "", "?",
                                 "topk:k=1,inner=none,intra_node=none"}) {
    EXPECT_EQ(with_present_keys(same), same);
  }
}

TEST(Keys, BadValuesAreRefusedByName) {
  const auto refusal = [](const std::string& text) {
    const auto result = split(text);
    EXPECT_FALSE(result.has_value()) << text;
    return result.error();
  };
  EXPECT_THAT(refusal("none:ef=ef99"),
              fails(kInvalid, "ef", "ef99", "none", "ef14", "ef21", "ef21_sgdm", "loco"));
  EXPECT_THAT(refusal("none:combine=ring"),
              fails(kInvalid, "combine", "ring", "auto", "sum", "gather", "sra", "oktopk"));
  EXPECT_THAT(refusal("none:min_elems=-1"), fails(kInvalid, "min_elems", "-1"));
  EXPECT_THAT(refusal("none:dense_1d=yes"), fails(kInvalid, "dense_1d", "yes", "true", "false"));
  EXPECT_THAT(refusal("none:warmup_steps=1.5"), fails(kInvalid, "warmup_steps", "1.5"));
  EXPECT_THAT(refusal("none:seed=x"), fails(kInvalid, "seed", "x"));
  EXPECT_THAT(refusal("topk:ratio=0.1|qsgd:bits=4,ef=ef14"), fails(kInvalid, "ef", "first"));
}

TEST(Fails, AsksForTheCodeAndForWholeWords) {
  const Status status(kInvalid, "key 'ef' is 'ef99' (-1 seen)");
  EXPECT_THAT(status, fails(kInvalid, "ef", "ef99", "-1"));
  EXPECT_THAT(status, ::testing::Not(fails(Code::kInternal, "ef")));
  EXPECT_THAT(status, ::testing::Not(fails(kInvalid, "ef9")));
  EXPECT_THAT(status, ::testing::Not(fails(kInvalid, "99")));
  EXPECT_THAT(Status(), ::testing::Not(fails(kInvalid)));
}

// The one whole sentence of this family.
TEST(Keys, ABadValueIsToldWithWhatMayStandThere) {
  const auto result = split("none:ef=ef99");
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(std::string(result.error().message()),
              ::testing::HasSubstr(
                  "key 'ef' is 'ef99' (expected one of none, ef14, ef21, ef21_sgdm, loco)"));
}

}  // namespace
}  // namespace gradwire::keys_test
