#include "compress/error_feedback/legality.h"

#include <gtest/gtest.h>

#include "gradwire/registry.h"
#include "tests/support/names.h"

namespace gradwire::legality_test {
namespace {

// A method that is nothing but claims.
class Claims final : public Compressor {
 public:
  Claims(std::string name, Traits traits, ErrorBound bound)
      : name_(std::move(name)), traits_(traits), bound_(bound) {}
  std::string spec() const override { return name_; }
  Traits traits() const override { return traits_; }
  ErrorBound bound(const Shape&) const override { return bound_; }
  std::size_t max_payload_bytes(const Shape&, DType, int, int) const override { return 0; }
  Result<std::unique_ptr<Coder>> open(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported, "claims only");
  }
  Result<std::unique_ptr<WireFormat>> open_slices(const Shape&, const Placement&) const override {
    return Status(Code::kUnsupported, "claims only");
  }

 private:
  std::string name_;
  Traits traits_;
  ErrorBound bound_;
};

using Kind = ErrorBound::Kind;
const Shape kShape = Shape::matrix(100, 10);

template <typename... Words>
auto refused(const Words&... words) {
  return fails(Code::kInvalidArgument, words...);
}

TEST(Legality, VoteUnderFeedbackIsRefusedEvenWhenUnsafeIsAllowed) {
  const Claims vote("vote", {.mean_is_average_of_own = false}, {});
  const auto verdict = check_pair(vote, kShape, {.error_feedback = true, .allow_unsafe = true});
  ASSERT_FALSE(verdict.has_value());
  EXPECT_THAT(verdict.error(), refused("vote", "signsgd:ef=ef14"));
  EXPECT_EQ(check_pair(vote, kShape, {}).value().warnings.size(), 1u);
}

TEST(Legality, HighVarianceIsScaledOrUnsafe) {
  const Claims coarse("coarse", {.unbiased = true}, {Kind::kVariance, 3.0});
  const auto scaled = check_pair(coarse, kShape, {.error_feedback = true});
  ASSERT_TRUE(scaled.has_value());
  EXPECT_EQ(scaled.value().scale, 0.25);
  EXPECT_EQ(scaled.value().warnings.size(), 1u);

  const auto bare = check_pair(coarse, kShape, {.error_feedback = true, .ef_scale_auto = false});
  ASSERT_FALSE(bare.has_value());
  EXPECT_THAT(bare.error(), refused("coarse", "ef_scale=auto"));

  const auto unsafe = check_pair(
      coarse, kShape, {.error_feedback = true, .ef_scale_auto = false, .allow_unsafe = true});
  ASSERT_TRUE(unsafe.has_value());
  EXPECT_EQ(unsafe.value().scale, 1.0);
  EXPECT_EQ(unsafe.value().warnings.size(), 1u);

  const auto plain = check_pair(
      Claims("coarse", {.unbiased = true, .needs_error_feedback = false}, {Kind::kVariance, 3.0}),
      kShape, {});
  EXPECT_TRUE(plain.value().warnings.empty());
  EXPECT_EQ(plain.value().scale, 1.0);
}

// QSGD under the L2 norm was taken without a word: at one level 17 times a gradient's energy is
// noise.
TEST(Legality, NoiseBeyondTheGradientIsToldOfWithoutFeedbackToo) {
  const Claims noisy("noisy", {.unbiased = true, .needs_error_feedback = false},
                     {Kind::kVariance, 3.5});
  const auto verdict = check_pair(noisy, kShape, {});
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict.value().scale, 1.0);
  ASSERT_EQ(verdict.value().warnings.size(), 1u);
  EXPECT_THAT(verdict.value().warnings[0], tells("noisy", "omega", "3.5"));
  const auto warnings = [](std::string_view spec) {
    const auto method = std::move(Registry::builtin().make(spec)).value();
    return check_pair(*method, Shape::matrix(64, 64), {}).value().warnings.size();
  };
  EXPECT_EQ(warnings("qsgd:levels=1,norm=l2"), 1u);  // sqrt(512) / 1
  EXPECT_EQ(warnings("qsgd:bits=4,norm=l2"), 1u);    // sqrt(512) / 7
  EXPECT_EQ(warnings("qsgd:bits=8,norm=l2"), 0u);
  EXPECT_EQ(warnings("qsgd:bits=4"), 0u);  // half of that of l2
}

TEST(Legality, LowVarianceAndContractionsAreSound) {
  const PairOptions feedback{.error_feedback = true};
  const auto fine =
      check_pair(Claims("fine", {.unbiased = true}, {Kind::kVariance, 0.99}), kShape, feedback);
  EXPECT_EQ(fine.value().scale, 1.0);
  EXPECT_TRUE(fine.value().warnings.empty());
  // A sparse method with a small share kept, and a projection that promises nothing but length.
  for (const double value : {0.001, 0.0}) {
    const auto sound =
        check_pair(Claims("sound", {}, {Kind::kContraction, value}), kShape, feedback);
    EXPECT_EQ(sound.value().scale, 1.0);
    EXPECT_TRUE(sound.value().warnings.empty());
  }
}

// The divisor is that of the tensor at hand, and what a small share of each message leaves behind
// is told where it is below one half: (1 - 1/4) / (1/4) = 3 gradients.
TEST(Legality, ASmallShareIsAnnouncedWithItsPrice) {
  const auto warning = [](double omega) {
    const Claims method("coarse", {.unbiased = true}, {Kind::kVariance, omega});
    return check_pair(method, kShape, {.error_feedback = true}).value().warnings.at(0);
  };
  EXPECT_THAT(warning(3.0), tells("divided by 4", "3 gradients", "residual", "ef=none",
                                  "ef_scale=none", "unsafe"));
  EXPECT_THAT(warning(1.0), tells("divided by 2"));
  EXPECT_THAT(warning(1.0), ::testing::Not(tells("residual")));
  // One level over n elements with one scale: half of sqrt(n) times the energy, of ranks' common
  // scale all of it. 68 * 68 and 144 * 144 elements: 34 and 72, 68 and 144.
  struct Case {
    const char* spec;
    std::int64_t side;
    double divisor;
  };
  for (const Case& one : {Case{"qsgd:bits=2,bucket=65536", 68, 35},
                          {"qsgd:bits=2,bucket=65536", 144, 73},
                          {"global_qsgd:levels=1,bucket=tensor", 68, 69},
                          {"global_qsgd:levels=1,bucket=tensor", 144, 145}}) {
    const auto method = std::move(Registry::builtin().make(one.spec)).value();
    const Shape shape = Shape::matrix(one.side, one.side);
    const auto verdict = check_pair(*method, shape, {.error_feedback = true}).value();
    EXPECT_NEAR(verdict.scale, 1 / one.divisor, 1e-12) << one.spec << " of side " << one.side;
  }
}

// A bound is the worst case: what is beyond it is not known to fail.
TEST(Legality, WhatMayDivergeIsNotSaidToDiverge) {
  const Claims coarse("coarse", {.unbiased = true}, {Kind::kVariance, 3.0});
  for (const bool unsafe : {false, true}) {
    const auto verdict = check_pair(
        coarse, kShape, {.error_feedback = true, .ef_scale_auto = false, .allow_unsafe = unsafe});
    const std::string text = verdict.has_value() ? verdict.value().warnings.at(0)
                                                 : std::string(verdict.error().message());
    EXPECT_THAT(text, tells("coarse", "may diverge", "worst case"));
    EXPECT_THAT(text, ::testing::Not(tells("known to")));
  }
}

TEST(Legality, WarningsOfMomentumLookAtTheMomentum) {
  const Claims fragile("coarse", {.elementwise = true}, {Kind::kContraction, 1.0 / 4096});
  const Claims keeps("keeps", {.own_feedback = true, .needs_error_feedback = false}, {});
  const auto warnings = [](const Claims& method, bool feedback, std::optional<double> momentum) {
    return check_pair(method, kShape, {.error_feedback = feedback, .momentum = momentum})
        .value()
        .warnings.size();
  };
  EXPECT_EQ(warnings(fragile, true, std::nullopt), 1u);
  EXPECT_EQ(warnings(fragile, true, 0.9), 1u);
  EXPECT_EQ(warnings(fragile, true, 0.0), 0u);
  EXPECT_EQ(warnings(keeps, false, std::nullopt), 1u);
  EXPECT_EQ(warnings(keeps, false, 0.0), 0u);
  const auto twice = check_pair(keeps, kShape, {.momentum = 0.9});
  ASSERT_FALSE(twice.has_value());
  EXPECT_THAT(twice.error(), refused("keeps", "0.9"));
}

TEST(Legality, NoBoundIsUnsafe) {
  const Claims sign("sign", {}, {});
  const auto verdict = check_pair(sign, kShape, {.error_feedback = true});
  ASSERT_FALSE(verdict.has_value());
  EXPECT_THAT(verdict.error(), refused("sign", "signsgd:scale=l1,ef=ef14"));
  const auto unsafe = check_pair(sign, kShape, {.error_feedback = true, .allow_unsafe = true});
  EXPECT_EQ(unsafe.value().warnings.size(), 1u);
}

TEST(Legality, FragileAndUselessPairsGetAWarning) {
  const PairOptions feedback{.error_feedback = true};
  const auto fragile = check_pair(
      Claims("coarse", {.elementwise = true}, {Kind::kContraction, 1.0 / 4096}), kShape, feedback);
  ASSERT_EQ(fragile.value().warnings.size(), 1u);
  EXPECT_THAT(fragile.value().warnings[0], tells("coarse", "momentum"));
  const auto exact =
      check_pair(Claims("exact", {.needs_error_feedback = false}, {Kind::kContraction, 1.0}),
                 kShape, feedback);
  EXPECT_EQ(exact.value().warnings.size(), 1u);
  // A method that is exact for this shape alone (powersgd's 1-d tensors) is no mistake.
  const auto here = check_pair(Claims("here", {}, {Kind::kContraction, 1.0}), kShape, feedback);
  EXPECT_TRUE(here.value().warnings.empty());
  const auto biased = check_pair(Claims("biased", {}, {Kind::kContraction, 0.1}), kShape, {});
  ASSERT_EQ(biased.value().warnings.size(), 1u);
  EXPECT_THAT(biased.value().warnings[0], tells("biased", "ef=ef14"));
}

}  // namespace
}  // namespace gradwire::legality_test
