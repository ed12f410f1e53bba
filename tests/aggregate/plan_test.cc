#include "aggregate/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/names.h"

namespace gradwire::plan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Code kInvalid = Code::kInvalidArgument;

// A gradient of that shape; nobody reads it.
TensorView grad_of(Shape shape) {
  static std::byte anywhere[8];
  return {anywhere, shape, DType::kF32};
}

Result<Parameter> fate(const std::string& compressor, Shape shape,
                       const std::string& name = "fc.weight") {
  AggregatorOptions options;
  options.compressor = compressor;
  auto plan = read_plan(Registry::builtin(), options);
  if (!plan.has_value()) return plan.error();
  return plan_parameter(plan.value(), options, name, grad_of(shape));
}

Path path_of(const std::string& compressor, Shape shape = Shape::matrix(64, 64)) {
  const auto parameter = fate(compressor, shape);
  EXPECT_TRUE(parameter.has_value()) << parameter.error().message();
  return parameter.has_value() ? parameter.value().path : Path::kDense;
}

Status refusal(const std::string& compressor) {
  const auto parameter = fate(compressor, Shape::matrix(64, 64));
  EXPECT_FALSE(parameter.has_value()) << compressor;
  return parameter.error();
}

TEST(Plan, AutoTakesSumForLinearSraForElementwiseGatherForTheRest) {
  EXPECT_EQ(path_of("none"), Path::kDense);
  EXPECT_EQ(path_of("cast:bf16"), Path::kSum);
  EXPECT_EQ(path_of("signsgd"), Path::kSra);
  EXPECT_EQ(path_of("topk:ratio=0.01"), Path::kGather);
  EXPECT_EQ(path_of("signsgd:vote=majority"), Path::kGather);
  EXPECT_EQ(path_of("cast:bf16,ef=ef14"), Path::kSra);
  // A key that follows the step changes nothing of the way.
  EXPECT_EQ(path_of("qsgd:bits=exp(8..4@400)"), Path::kSra);
  EXPECT_EQ(path_of("topk:ratio=0.25@0/0.01@400"), Path::kGather);
}

// 68 * 68 and 144 * 144 elements under one norm, on one level: 34 and 72 times the energy. The
// matrix that rules are judged by would have 513.
TEST(Plan, WarningsNameTheDivisorsThatAreUsed) {
  AggregatorOptions options;
  options.compressor = "qsgd:bits=2,bucket=1048576,ef=ef14";
  auto plan = read_plan(Registry::builtin(), options);
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  for (const std::int64_t side : {68, 144}) {
    const auto parameter = plan_parameter(plan.value(), options, "w" + std::to_string(side),
                                          grad_of(Shape::matrix(side, side)));
    ASSERT_TRUE(parameter.has_value()) << parameter.error().message();
    EXPECT_NEAR(parameter.value().scale, side == 68 ? 1.0 / 35 : 1.0 / 73, 1e-12);
  }
  EXPECT_THAT(plan.value().warnings, ElementsAre(tells("divided by 35 "), tells("divided by 73 ")));
}

TEST(Plan, TheModeAskedForIsTakenWhereLegal) {
  EXPECT_EQ(path_of("none:combine=gather"), Path::kGather);
  EXPECT_EQ(path_of("none:combine=sra"), Path::kSra);
  EXPECT_EQ(path_of("signsgd:combine=gather"), Path::kGather);
  EXPECT_EQ(path_of("signsgd:vote=majority,combine=sra"), Path::kSra);
  EXPECT_THAT(refusal("topk:ratio=0.01,combine=sra"), fails(kInvalid, "combine=gather"));
  EXPECT_THAT(refusal("topk:ratio=0.01,combine=sum"), fails(kInvalid, "combine=gather"));
  EXPECT_THAT(refusal("signsgd:combine=sum"), fails(kInvalid, "combine=sra"));
}

TEST(Plan, PairsAreForSparseMethodsThatLeaveTheirRestToOthers) {
  EXPECT_EQ(path_of("topk:k=9,combine=oktopk"), Path::kOkTopk);
  EXPECT_EQ(path_of("topk:k=9,combine=oktopk,ef=ef21"), Path::kOkTopk);
  EXPECT_THAT(refusal("qsgd:bits=4,combine=oktopk"), fails(kInvalid, "topk"));
  EXPECT_THAT(refusal("powersgd:rank=1,combine=oktopk"), fails(kInvalid, "topk"));
  EXPECT_THAT(refusal("topk:k=9,combine=oktopk|qsgd:bits=4"),
              fails(kInvalid, "topk", "combine=oktopk"));
  EXPECT_THAT(refusal("topk:k=9,index=gaps,combine=oktopk"),
              fails(kInvalid, "topk", "combine=oktopk"));
}

TEST(Plan, SixteenBitSumsAndErrorFeedbackDoNotMix) {
  EXPECT_THAT(refusal("cast:bf16,ef=ef14,combine=sum"), fails(kInvalid, "combine=sra"));
  AggregatorOptions options;
  options.compressor = "cast:bf16,ef=ef14,combine=sum";
  options.allow_unsafe = true;
  const auto plan = read_plan(Registry::builtin(), options);
  ASSERT_TRUE(plan.has_value());
  EXPECT_THAT(plan.value().warnings, ElementsAre(tells("'cast:bf16,ef=ef14,combine=sum'",
                                                       "error feedback", "in bf16", "unsafe")));
}

TEST(Plan, EveryKindOfFeedbackStandsWhereSumsAreEncodedAgain) {
  for (const std::string ef : {"ef=ef14", "ef=ef21", "ef=ef21_sgdm", "ef=loco",
                               "ef=ef14,ef_storage=bf16", "ef=ef14,ef_storage=int8"}) {
    EXPECT_EQ(path_of("qsgd:bits=4," + ef), Path::kSra) << ef;
    EXPECT_EQ(path_of("cast:bf16," + ef), Path::kSra) << ef;
    EXPECT_EQ(path_of("qsgd:bits=4,combine=gather," + ef), Path::kGather) << ef;
    EXPECT_EQ(path_of("powersgd:rank=1," + ef), Path::kSum) << ef;
    EXPECT_THAT(refusal("topk:k=9,combine=sra," + ef), fails(kInvalid, "combine=gather"));
    EXPECT_THAT(refusal("cast:bf16,combine=sum," + ef), fails(kInvalid, "combine"));
  }
}

TEST(Plan, VotesAndErrorFeedbackDoNotMix) {
  EXPECT_THAT(refusal("signsgd:vote=majority,ef=ef14"), fails(kInvalid, "ef"));
}

TEST(Plan, SmallAndOneDimensionalTensorsTravelDense) {
  const std::string topk = "topk:ratio=0.01";
  EXPECT_EQ(path_of(topk, Shape::vector(100000)), Path::kDense);
  EXPECT_EQ(path_of(topk + ",dense_1d=false", Shape::vector(100000)), Path::kGather);
  EXPECT_EQ(path_of(topk, Shape::matrix(31, 33)), Path::kDense);   // 1023
  EXPECT_EQ(path_of(topk, Shape::matrix(32, 32)), Path::kGather);  // 1024
  EXPECT_EQ(path_of(topk + ",min_elems=0", Shape::matrix(1, 1)), Path::kGather);
  EXPECT_EQ(path_of(topk + ",min_elems=0", Shape::matrix(0, 5)), Path::kDense);
}

TEST(Plan, TheFirstMatchingRuleDecides) {
  const std::string rules = "*.bias=none; fc?.*=topk:ratio=0.5,min_elems=0; *=signsgd:min_elems=0";
  const Shape shape = Shape::matrix(4, 4);
  const auto path = [&](const std::string& name) {
    const auto parameter = fate(rules, shape, name);
    EXPECT_TRUE(parameter.has_value());
    return parameter.value().path;
  };
  EXPECT_EQ(path("fc1.bias"), Path::kDense);
  EXPECT_EQ(path("fc1.weight"), Path::kGather);
  EXPECT_EQ(path("conv.weight"), Path::kSra);
  const auto unmatched = fate("*.bias=none", shape, "fc1.weight");
  ASSERT_FALSE(unmatched.has_value());
  EXPECT_THAT(unmatched.error(), fails(kInvalid, "*.bias=none", "fc1.weight"));
}

TEST(Plan, RulesChooseBySize) {
  const std::string rules = "*@..64=none; *@1KB..4KB=signsgd:min_elems=0; *=topk:k=1,min_elems=0";
  EXPECT_EQ(path_of(rules, Shape::matrix(7, 9)), Path::kDense);     // 63 elements
  EXPECT_EQ(path_of(rules, Shape::matrix(8, 8)), Path::kGather);    // 256 bytes
  EXPECT_EQ(path_of(rules, Shape::matrix(16, 16)), Path::kSra);     // 1024 bytes
  EXPECT_EQ(path_of(rules, Shape::matrix(32, 32)), Path::kGather);  // 4096 bytes
  const auto unmatched = fate("*@..64=none", Shape::matrix(8, 8));
  ASSERT_FALSE(unmatched.has_value());
  EXPECT_THAT(unmatched.error(), fails(kInvalid, "*@..64=none", "fc.weight", "64", "256"));
}

TEST(Plan, OfSeveralRulesErrorsNameTheOne) {
  EXPECT_THAT(refusal("*.bias=none; *@1K..=qsgd:bits=9"),
              fails(kInvalid, "*@1K..=qsgd:bits=9", "qsgd", "bits", "9"));
  EXPECT_THAT(refusal("topk:k=1; *.bias=none"), fails(kInvalid, "*.bias=none", "*=topk:k=1"));
  EXPECT_THAT(refusal("a*@..1K=none; a*@5..1K=none; *=none"),
              fails(kInvalid, "a*@5..1K=none", "a*@..1K=none"));
}

// The one whole sentence of this family.
TEST(Plan, ARuleThatNothingReachesIsToldWithTheOneBefore) {
  EXPECT_THAT(std::string(refusal("topk:k=1; *.bias=none").message()),
              HasSubstr("rule '*.bias=none': no parameter reaches it, because '*=topk:k=1' before "
                        "it takes them all"));
}

TEST(Plan, OldNamesOfKeysAreReportedOnceForAllRules) {
  AggregatorOptions options;
  options.compressor = "bias=none;a=topk:k=1,inner=none;*=qsgd:bits=4,inner=none";
  const auto plan = read_plan(Registry::builtin(), options);
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_THAT(plan.value().warnings, ElementsAre(tells("'inner'", "'intra_node'")));
  EXPECT_EQ(plan.value().rules[2].text, "qsgd:bits=4,intra_node=none");
  options.compressor = "qsgd:bits=4,intra_node=none";
  EXPECT_THAT(read_plan(Registry::builtin(), options).value().warnings, IsEmpty());
}

TEST(Plan, UnknownKeysAreAnsweredWithTheMethodsAndTheAggregators) {
  EXPECT_THAT(refusal("topk:ratio=0.1,eff=ef14"), fails(kInvalid, "eff", "ef14", "ratio"));
  EXPECT_THAT(refusal("topk:ratio=0.1,eff=ef14"), fails(kInvalid, "ef", "ef_scale", "combine"));
}

std::vector<Parameter> parameters(std::vector<std::pair<Path, std::int64_t>> list) {
  std::vector<Parameter> all;
  for (const auto& [path, elems] : list) {
    Parameter parameter{.name = "p" + std::to_string(all.size()),
                        .grad = grad_of(Shape::vector(elems)),
                        .path = path};
    auto none = Registry::builtin().make("none");
    parameter.compressor = std::move(none).value();
    all.push_back(std::move(parameter));
  }
  return all;
}

std::vector<std::vector<int>> members(const std::vector<BucketPlan>& buckets) {
  std::vector<std::vector<int>> all;
  for (const BucketPlan& bucket : buckets) all.push_back(bucket.parameters);
  return all;
}

TEST(Buckets, FillFromTheLastParameterToTheFirst) {
  const auto list = parameters({{Path::kDense, 10},
                                {Path::kDense, 10},
                                {Path::kDense, 10},
                                {Path::kDense, 10},
                                {Path::kDense, 10}});
  EXPECT_THAT(members(plan_buckets(list, 80, 2)),  // two of 40 bytes each
              ElementsAre(ElementsAre(3, 4), ElementsAre(1, 2), ElementsAre(0)));
}

TEST(Buckets, HoldOneKindAndCompleteInTheOrderOfBackward) {
  const auto list = parameters({{Path::kGather, 10},
                                {Path::kDense, 1},
                                {Path::kGather, 10},
                                {Path::kDense, 1},
                                {Path::kGather, 10}});
  // Gathers 4 and 2 fill a bucket, which is complete at 2; the dense ones complete at 1.
  EXPECT_THAT(members(plan_buckets(list, 80, 2)),
              ElementsAre(ElementsAre(2, 4), ElementsAre(1, 3), ElementsAre(0)));
}

TEST(Buckets, ALargerParameterIsABucketOfItsOwn) {
  const auto list = parameters(
      {{Path::kDense, 10}, {Path::kDense, 1000}, {Path::kDense, 10}, {Path::kDense, 10}});
  EXPECT_THAT(members(plan_buckets(list, 80, 2)),
              ElementsAre(ElementsAre(2, 3), ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT(plan_buckets({}, 80, 2), IsEmpty());
}

TEST(RingElems, ByHand) {
  EXPECT_EQ(ring_elems_sent(100, 0, 1), 0);
  EXPECT_EQ(ring_elems_sent(100, 0, 2), 100);  // half of it, twice
  // 10 elements on 4 ranks: pieces 3 3 2 2. Rank 0 keeps back pieces 0 and 1: 20 - 3 - 3.
  EXPECT_EQ(ring_elems_sent(10, 0, 4), 14);
  EXPECT_EQ(ring_elems_sent(10, 1, 4), 15);
  EXPECT_EQ(ring_elems_sent(10, 2, 4), 16);
  EXPECT_EQ(ring_elems_sent(10, 3, 4), 15);
  std::int64_t all = 0;
  for (int rank = 0; rank < 4; ++rank) all += ring_elems_sent(10, rank, 4);
  EXPECT_EQ(all, 2 * 3 * 10);  // 2(n-1) rounds, in each of which every element moves once
}

// What travels dense would go without the momentum that dgc keeps on the worker.
TEST(Plan, MethodsThatKeepMomentumTakeEveryParameter) {
  EXPECT_EQ(path_of("dgc", Shape::vector(10)), Path::kGather);
  EXPECT_EQ(path_of("dgc:dense_1d=true", Shape::vector(10)), Path::kDense);
  EXPECT_EQ(path_of("dgc:min_elems=50", Shape::matrix(5, 5)), Path::kDense);
  EXPECT_THAT(refusal("dgc:warmup_steps=9"), fails(kInvalid, "dgc", "warmup_steps"));
  EXPECT_THAT(refusal("dgc:ef=ef14"), fails(kInvalid, "dgc", "ef"));
  EXPECT_THAT(refusal("topk:k=1,ef_rescale_lr=true"), fails(kInvalid, "ef=ef14"));
  EXPECT_TRUE(fate("dgc:ef_rescale_lr=true", Shape::matrix(9, 9)).value().feedback.rescale_lr);
}

TEST(Plan, SharedPlacesAddUp) {
  for (const char* spec : {"randomk:ratio=0.1", "cltk:ratio=0.1"}) {
    EXPECT_EQ(path_of(spec), Path::kSum) << spec;
    EXPECT_EQ(path_of(spec + std::string("|qsgd:bits=4")), Path::kGather) << spec;
    EXPECT_EQ(path_of(spec + std::string(",combine=gather")), Path::kGather) << spec;
  }
  EXPECT_EQ(path_of("block_sparse"), Path::kGather);
  EXPECT_EQ(path_of("threshold:1"), Path::kGather);
}

}  // namespace
}  // namespace gradwire::plan_test
