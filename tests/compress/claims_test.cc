// What every method claims of its error, as its paper has it. The laws hold a method to its own
// claim; a claim that is weakened, or given up, passes them and fails here.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "gradwire/registry.h"

namespace gradwire::claims_test {
namespace {

constexpr double kElems = 1e6;  // of a matrix of 1000 x 1000
constexpr double kBucket = 512;
constexpr double kSigns = 4096;  // of signs under one scale

struct Claim {
  std::string spec;
  ErrorBound::Kind kind = ErrorBound::Kind::kNone;
  double value = 0;
  bool unbiased = false;
  double scale = 1;
  bool over_ranks = false;
};

Claim exact(const std::string& spec) { return {spec, ErrorBound::Kind::kContraction, 1, true}; }
Claim nothing(const std::string& spec) { return {spec}; }
// E|C(x) - x|^2 <= omega |x|^2 and E C(x) = x.
Claim unbiased(const std::string& spec, double omega, bool over_ranks = false) {
  return {spec, ErrorBound::Kind::kVariance, omega, true, 1, over_ranks};
}
// E|x - scale C(x)|^2 <= (1 - delta) |x|^2.
Claim contraction(const std::string& spec, double delta, double scale = 1,
                  bool over_ranks = false) {
  return {spec, ErrorBound::Kind::kContraction, delta, false, scale, over_ranks};
}

// Of a block of a Gaussian's shape that is cut at `clip` of its rms: 4 (e^(-T^2/2) - T sqrt(2 pi)
// Q(T)); and a quarter of the step's square, twice clip / grid wide.
double thc_delta(double clip, double grid) {
  const double tail = std::erfc(clip / std::numbers::sqrt2) / 2;
  const double cut =
      4 * (std::exp(-clip * clip / 2) - clip * std::sqrt(2 * std::numbers::pi) * tail);
  return 1 - cut - clip * clip / (grid * grid);
}

std::vector<Claim> claims() {
  // Clipped at 2.5 rms of a million elements <x, clipped x> / |x|^2 is at least u^2 = 2.5 / 1000,
  // where one element is all of x; a scale of u / 2.5 then leaves 1 - (u / 2.5) u^2.
  const double u = std::sqrt(2.5 / std::sqrt(kElems));
  return {
      exact("none"), exact("lossless"), exact("block_sparse"),
      // Half a step of 2^-7 of the power of two below.
      contraction("cast:bf16", 1 - 0x1p-16),
      // Half a step of 2^-3 of the power of two below.
      contraction("fp8", 1 - 0x1p-8),
      // The largest number of a block may be cut from just below 512 to 448: 1/8 of it.
      contraction("mx", 1 - 0x1p-6),
      unbiased("natural", 1.0 / 8),  // Horvath et al. 2022, theorem 1
      contraction("topk:ratio=0.01", 0.01),
      contraction("threshold:tau=1", 0),  // all may lie below tau
      nothing("dgc"), contraction("randomk:ratio=0.01", 0.01),
      unbiased("randomk:ratio=0.01,unbiased=true", 1 / 0.01 - 1),
      contraction("cltk:ratio=0.01", 0),  // another rank's places may hold nothing
      // Half a step of (max - min) / 255, whose square is at most 2 |x|^2 / 255^2.
      contraction("minmax:bits=8", 1 - kBucket * 2 / (510.0 * 510)),
      contraction("absmax:bits=8", 1 - kBucket / (254.0 * 254)),
      // One element of the norm N, the others a share p of the first level N / s: B p (1 - p) /
      // (s^2 + B p^2) is at most sqrt(B) / 2 s.
      unbiased("qsgd:bits=4", std::sqrt(kBucket) / (2 * 7)),
      unbiased("global_qsgd", kBucket / (4 * 7 * 7), true),  // N of another rank: N^2 / 4 s^2 each
      contraction("terngrad", u * u * u / 2.5, u / 2.5, true),
      unbiased("terngrad:clip=0,shared=false", (std::sqrt(kElems) - 1) / 2),
      contraction("thc", thc_delta(2.154, 15), 1, true),
      contraction("signsgd", 1 / kSigns),  // |x|_1^2 / n |x|^2, least where one element is all
      contraction("onebit", 1 / kSigns), nothing("signsgd:scale=none"),
      nothing("signsgd:vote=majority"), nothing("signum"),
      contraction("powersgd", 0),  // one power iteration may miss everything
      contraction("acpsgd", 0),
      unbiased("atomo", 1000.0 / 3 - 1),  // min(a, c) / s - 1, Wang et al. 2018
  };
}

TEST(Claims, AreThoseOfThePapers) {
  const Registry registry = Registry::builtin();
  for (const Claim& claim : claims()) {
    SCOPED_TRACE(claim.spec);
    const auto made = registry.make(std::string_view(claim.spec));
    ASSERT_TRUE(made.has_value()) << made.error().message();
    const ErrorBound bound = made.value()->bound(Shape::matrix(1000, 1000));
    EXPECT_EQ(bound.kind, claim.kind);
    EXPECT_EQ(made.value()->traits().unbiased, claim.unbiased);
    if (claim.kind == ErrorBound::Kind::kNone) continue;
    // fp8 adds what its least numbers, which have steps of their own, may lose.
    EXPECT_NEAR(bound.value, claim.value, 1e-7 * std::max(1.0, claim.value));
    EXPECT_NEAR(bound.scale, claim.scale, 1e-12);
    EXPECT_EQ(bound.over_ranks, claim.over_ranks);
  }
}

TEST(Claims, AreOfEveryMethod) {
  std::set<std::string> listed;
  for (const Claim& claim : claims()) listed.insert(claim.spec.substr(0, claim.spec.find(':')));
  const Registry registry = Registry::builtin();
  std::set<std::string> registered;
  for (const Registry::Method& method : registry.methods()) registered.insert(method.name);
  EXPECT_EQ(listed, registered);
  EXPECT_EQ(registered.size(), 24U);
}

}  // namespace
}  // namespace gradwire::claims_test
