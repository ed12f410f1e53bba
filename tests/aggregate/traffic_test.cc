// What a policy's text means for each class of traffic, and what is answered where a class cannot
// take a method.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aggregate/plan/plan.h"
#include "gradwire/aggregator.h"
#include "tests/support/names.h"

namespace gradwire::traffic_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr Code kInvalid = Code::kInvalidArgument;

Result<TrafficPolicy> parse(const std::string& text, bool allow_unsafe = false) {
  return TrafficPolicy::parse(Registry::builtin(), text, allow_unsafe);
}

Status refusal(const std::string& text) {
  const auto policy = parse(text);
  EXPECT_FALSE(policy.has_value()) << text;
  return policy.error();
}

bool takes(const std::string& text) {
  const auto policy = parse(text);
  EXPECT_TRUE(policy.has_value()) << policy.error().message();
  return policy.has_value();
}

TEST(TrafficPolicy, EntriesNameClassAlgorithmAndRules) {
  const auto policy = parse(
      " gradients = [*.bias=none; *=topk:ratio=0.01,ef=ef14]; parameters=cast:bf16 ;"
      "statistics/canonical=none;");
  ASSERT_TRUE(policy.has_value()) << policy.error().message();
  const TrafficPolicy& all = policy.value();
  EXPECT_EQ(all.of(TrafficClass::kGradients).compressor, "*.bias=none; *=topk:ratio=0.01,ef=ef14");
  EXPECT_EQ(all.of(TrafficClass::kGradients).algorithm, "auto");
  EXPECT_EQ(all.of(TrafficClass::kParameters).compressor, "cast:bf16");
  EXPECT_EQ(all.of(TrafficClass::kStatistics).algorithm, "canonical");
  for (const TrafficClass left :
       {TrafficClass::kActivations, TrafficClass::kActivationGradients, TrafficClass::kOptimizer}) {
    EXPECT_EQ(all.of(left).compressor, "none");
    EXPECT_EQ(all.of(left).algorithm, "auto");
  }
}

TEST(TrafficPolicy, NothingNamedTravelsExactly) {
  const auto policy = parse("");
  ASSERT_TRUE(policy.has_value());
  EXPECT_EQ(policy.value().of(TrafficClass::kGradients).compressor, "none");
}

TEST(TrafficPolicy, OptionsAreTheCallersButForWhatTheClassSays) {
  AggregatorOptions base;
  base.bucket_bytes = 99;
  base.seed = 7;
  const auto policy = parse("parameters/ring=fp8");
  ASSERT_TRUE(policy.has_value());
  const AggregatorOptions options = policy.value().options(TrafficClass::kParameters, base);
  EXPECT_EQ(options.traffic, TrafficClass::kParameters);
  EXPECT_EQ(options.compressor, "fp8");
  EXPECT_EQ(options.algorithm, "ring");
  EXPECT_EQ(options.bucket_bytes, 99);
  EXPECT_EQ(options.seed, 7u);
}

TEST(TrafficPolicy, WrongTextsAreAnsweredByEntry) {
  EXPECT_THAT(refusal("grads=none"),
              fails(kInvalid, "grads=none", "grads", "gradients", "parameters", "activations",
                    "activation_gradients", "optimizer", "statistics"));
  EXPECT_THAT(refusal("gradients"), fails(kInvalid, "gradients", "CLASS=SPEC"));
  EXPECT_THAT(refusal("gradients=none; gradients=none"), fails(kInvalid, "gradients", "twice"));
  EXPECT_THAT(refusal("gradients=[none"), fails(kInvalid, "'['", "']'"));
  EXPECT_THAT(refusal("gradients/=none"), fails(kInvalid, "gradients/", "algorithm"));
  EXPECT_THAT(refusal("gradients/fastest=none"), fails(kInvalid, "fastest"));
  EXPECT_THAT(refusal("parameters=qsgd:bits=9"), fails(kInvalid, "bits", "9"));
}

TEST(TrafficPolicy, GradientsTakeEverything) {
  for (const std::string spec : {"topk:ratio=0.01,ef=ef14", "signsgd:vote=majority", "signum",
                                 "powersgd:rank=4,ef=ef14", "qsgd:bits=4", "none"}) {
    EXPECT_TRUE(takes("gradients=" + spec)) << spec;
  }
}

TEST(TrafficPolicy, ParametersMustArriveAsLargeAsTheyAre) {
  for (const std::string spec : {"none", "lossless", "cast:bf16", "fp8", "qsgd:bits=8,bucket=128",
                                 "topk:ratio=0.1,ef=ef21", "minmax:bits=8"}) {
    EXPECT_TRUE(takes("parameters=" + spec)) << spec;
  }
  for (const std::string spec : {"signsgd:vote=majority", "signum", "signsgd:scale=none"}) {
    EXPECT_THAT(refusal("parameters=" + spec), fails(kInvalid, "parameters", "cast:bf16")) << spec;
  }
  for (const std::string spec : {"topk:ratio=0.1", "topk:ratio=0.1,ef=ef14", "signsgd",
                                 "qsgd:levels=1,norm=l2", "powersgd:rank=2"}) {
    EXPECT_THAT(refusal("parameters=" + spec), fails(kInvalid, "parameters", "ef=ef21")) << spec;
  }
  EXPECT_THAT(refusal("parameters=qsgd:bits=8,ef=ef14,ef_rescale_lr=true"),
              fails(kInvalid, "ef_rescale_lr"));
}

TEST(TrafficPolicy, ActivationsTakeNothingOfOtherSamples) {
  for (const std::string way : {"activations", "activation_gradients"}) {
    for (const std::string spec :
         {"none", "cast:bf16", "fp8", "mx", "qsgd:bits=8", "topk:ratio=0.1", "minmax:bits=4"}) {
      EXPECT_TRUE(takes(way + "=" + spec)) << spec;
    }
    EXPECT_THAT(refusal(way + "=qsgd:bits=4,ef=ef14"), fails(kInvalid, way, "ef"));
    EXPECT_THAT(refusal(way + "=powersgd:rank=4"), fails(kInvalid, way, "powersgd:rank=4"));
    EXPECT_THAT(refusal(way + "=signum"), fails(kInvalid, way, "signum"));
    EXPECT_THAT(refusal(way + "=signsgd:vote=majority"), fails(kInvalid, way, "signsgd"));
  }
}

TEST(TrafficPolicy, AnOptimizersMomentaAreNoVotes) {
  EXPECT_TRUE(takes("optimizer=signsgd:ef=ef14"));
  EXPECT_THAT(refusal("optimizer=signum"), fails(kInvalid, "optimizer", "signum"));
  EXPECT_THAT(refusal("optimizer=topk:ratio=0.1,ef=ef14,ef_rescale_lr=true"),
              fails(kInvalid, "ef_rescale_lr"));
}

TEST(TrafficPolicy, StatisticsTravelExactlyWhateverIsAllowed) {
  EXPECT_TRUE(takes("statistics=lossless"));
  EXPECT_THAT(refusal("statistics=cast:bf16"),
              fails(kInvalid, "statistics", "cast:bf16", "none", "lossless"));
  EXPECT_FALSE(parse("statistics=cast:bf16", true).has_value());
}

TEST(TrafficPolicy, UnsafePairsRunWithAWarning) {
  const std::string text = "activations=qsgd:bits=4,ef=ef14";
  const auto policy = parse(text, true);
  ASSERT_TRUE(policy.has_value()) << policy.error().message();
  const auto plan =
      read_plan(Registry::builtin(), policy.value().options(TrafficClass::kActivations));
  ASSERT_TRUE(plan.has_value());
  EXPECT_THAT(plan.value().warnings,
              Contains(tells("'qsgd:bits=4,ef=ef14' for activations", "error feedback", "unsafe")));
}

// The one whole sentence of this family.
TEST(TrafficPolicy, ARefusalSaysWhatToWriteInstead) {
  const std::string said(refusal("statistics=cast:bf16").message());
  EXPECT_THAT(said, HasSubstr("sent exactly"));
  EXPECT_THAT(said, HasSubstr("; write none or lossless"));
}

TEST(TrafficPolicy, EveryRuleOfAClassIsJudged) {
  EXPECT_THAT(refusal("statistics=[*.loss=none;*=cast:fp16]"),
              fails(kInvalid, "*=cast:fp16", "cast:fp16", "statistics"));
}

}  // namespace
}  // namespace gradwire::traffic_test
