// What a policy's text means for each class of traffic, and what is answered where a class cannot
// take a method.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aggregate/plan.h"
#include "gradwire/aggregator.h"

namespace gradwire {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<TrafficPolicy> parse(const std::string& text, bool allow_unsafe = false) {
  return TrafficPolicy::parse(Registry::builtin(), text, allow_unsafe);
}

std::string refusal(const std::string& text) {
  const auto policy = parse(text);
  EXPECT_FALSE(policy.has_value()) << text;
  EXPECT_EQ(policy.error().code(), Code::kInvalidArgument);
  return std::string(policy.error().message());
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
              AllOf(HasSubstr("'grads=none'"), HasSubstr("'grads' is no class of traffic"),
                    HasSubstr("gradients, parameters, activations, activation_gradients, "
                              "optimizer, statistics wanted")));
  EXPECT_THAT(refusal("gradients"), HasSubstr("no '=' (CLASS=SPEC"));
  EXPECT_THAT(refusal("gradients=none; gradients=none"), HasSubstr("given twice"));
  EXPECT_THAT(refusal("gradients=[none"), HasSubstr("'[' has no ']'"));
  EXPECT_THAT(refusal("gradients/=none"), HasSubstr("an algorithm is missing"));
  EXPECT_THAT(refusal("gradients/fastest=none"), HasSubstr("no algorithm 'fastest'"));
  EXPECT_THAT(refusal("parameters=qsgd:bits=9"), HasSubstr("key 'bits' is '9'"));
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
    EXPECT_THAT(
        refusal("parameters=" + spec),
        AllOf(HasSubstr("sends a vote, a momentum or a sign"), HasSubstr("; write cast:bf16")))
        << spec;
  }
  for (const std::string spec : {"topk:ratio=0.1", "topk:ratio=0.1,ef=ef14", "signsgd",
                                 "qsgd:levels=1,norm=l2", "powersgd:rank=2"}) {
    EXPECT_THAT(refusal("parameters=" + spec),
                AllOf(HasSubstr("for parameters: "), HasSubstr("or ef=ef21")))
        << spec;
  }
  EXPECT_THAT(refusal("parameters=qsgd:bits=8,ef=ef14,ef_rescale_lr=true"),
              HasSubstr("leave ef_rescale_lr out"));
}

TEST(TrafficPolicy, ActivationsTakeNothingOfOtherSamples) {
  for (const std::string way : {"activations", "activation_gradients"}) {
    for (const std::string spec :
         {"none", "cast:bf16", "fp8", "mx", "qsgd:bits=8", "topk:ratio=0.1", "minmax:bits=4"}) {
      EXPECT_TRUE(takes(way + "=" + spec)) << spec;
    }
    EXPECT_THAT(refusal(way + "=qsgd:bits=4,ef=ef14"),
                AllOf(HasSubstr("error feedback would add what was left of one sample to another"),
                      HasSubstr("; leave ef out")));
    EXPECT_THAT(refusal(way + "=powersgd:rank=4"), HasSubstr("belongs to other samples"));
    EXPECT_THAT(refusal(way + "=signum"), HasSubstr("belongs to other samples"));
    EXPECT_THAT(refusal(way + "=signsgd:vote=majority"), HasSubstr("sends signs alone"));
  }
}

TEST(TrafficPolicy, AnOptimizersMomentaAreNoVotes) {
  EXPECT_TRUE(takes("optimizer=signsgd:ef=ef14"));
  EXPECT_THAT(refusal("optimizer=signum"), HasSubstr("length 1 whatever the momentum's"));
  EXPECT_THAT(refusal("optimizer=topk:ratio=0.1,ef=ef14,ef_rescale_lr=true"),
              HasSubstr("leave ef_rescale_lr out"));
}

TEST(TrafficPolicy, StatisticsTravelExactlyWhateverIsAllowed) {
  EXPECT_TRUE(takes("statistics=lossless"));
  EXPECT_THAT(refusal("statistics=cast:bf16"),
              AllOf(HasSubstr("travel exactly"), HasSubstr("; write none or lossless")));
  EXPECT_FALSE(parse("statistics=cast:bf16", true).has_value());
}

TEST(TrafficPolicy, UnsafePairsRunWithAWarning) {
  const std::string text = "activations=qsgd:bits=4,ef=ef14";
  const auto policy = parse(text, true);
  ASSERT_TRUE(policy.has_value()) << policy.error().message();
  const auto plan =
      read_plan(Registry::builtin(), policy.value().options(TrafficClass::kActivations));
  ASSERT_TRUE(plan.has_value());
  EXPECT_THAT(plan.value().warnings, Contains(HasSubstr("run because unsafe pairs are allowed")));
}

TEST(TrafficPolicy, EveryRuleOfAClassIsJudged) {
  EXPECT_THAT(refusal("statistics=[*.loss=none;*=cast:fp16]"),
              HasSubstr("rule '*=cast:fp16': compressor 'cast:fp16' for statistics"));
}

}  // namespace
}  // namespace gradwire
