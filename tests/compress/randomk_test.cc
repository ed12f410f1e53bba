#include "compress/randomk/randomk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

#include "base/philox.h"
#include "base/text.h"
#include "compress/error_feedback/ef14.h"
#include "compress/error_feedback/legality.h"
#include "compress/randomk/places.h"
#include "tests/reference/sparse_reference.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::randomk_test {
namespace {

using testing::CoderRanks;
using testing::make;
using testing::normals;
using Places = std::vector<std::uint32_t>;

RandomStream stream_of(std::uint64_t tensor, std::uint64_t step) {
  return {1, RandomUse::kPlaces, tensor, kSharedRank, 0, step};
}

Places drawn(std::uint64_t tensor, std::uint64_t step, std::size_t n, std::size_t k) {
  Places places(k);
  std::vector<std::uint64_t> seen;
  draw_places(stream_of(tensor, step), n, places, seen);
  return places;
}

TEST(RandomPlaces, AreFloydsAndAscend) {
  for (const std::size_t n : {1, 2, 63, 64, 65, 1000, 70'001}) {
    for (const std::size_t k : {std::size_t{1}, n / 100, n / 2, n - 1, n}) {
      if (k == 0) continue;
      const Places places = drawn(9, 5, n, k);
      EXPECT_EQ(places, testing::places_reference(stream_of(9, 5), n, k)) << n << " " << k;
      EXPECT_TRUE(std::is_sorted(places.begin(), places.end(), std::less_equal<>()) || k == 1);
      EXPECT_LT(places.back(), n);
    }
  }
}

// Every pair of places of six is as likely as any other: 15 pairs, 15,000 draws.
TEST(RandomPlaces, EverySubsetIsEquallyLikely) {
  constexpr int kDraws = 15'000;
  std::map<Places, int> seen;
  for (std::uint64_t step = 0; step < kDraws; ++step) ++seen[drawn(3, step, 6, 2)];
  EXPECT_EQ(seen.size(), 15u);
  double chi = 0;
  for (const auto& [places, count] : seen) chi += std::pow(count - 1000, 2) / 1000.0;
  EXPECT_LT(chi, 36.1);  // 14 degrees of freedom, one in a thousand
}

// The largest index that 32 bits hold can be drawn without rounding: probabilities stay k/n.
TEST(RandomPlaces, HalfOfThemLieInTheUpperHalf) {
  const std::size_t n = (std::size_t{1} << 24) + 77;
  const Places places = drawn(1, 0, n, 40'000);
  const auto upper = std::count_if(places.begin(), places.end(),
                                   [n](std::uint32_t place) { return place >= n / 2; });
  EXPECT_NEAR(static_cast<double>(upper), 20'000, 4 * 100);  // four deviations
  const auto odd = std::count_if(places.begin(), places.end(),
                                 [](std::uint32_t place) { return place % 2 == 1; });
  EXPECT_NEAR(static_cast<double>(odd), 20'000, 4 * 100);
}

TEST(Randomk, SendsTheDrawnElementsAndNoIndices) {
  const auto method = make("randomk:k=40");
  auto ranks = CoderRanks<float>::open(*method, Shape::vector(1000), 3, 1, 9);
  const std::vector<std::vector<float>> x{normals<float>(1000, 1), normals<float>(1000, 2),
                                          normals<float>(1000, 3)};
  const auto outcome = ranks.value().step(x, 5);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.bytes[0][0].size(), 40u * 4);
  const Places places = testing::places_reference(stream_of(9, 5), 1000, 40);
  std::vector<float> wanted(1000);
  for (const std::uint32_t i : places) wanted[i] = x[1][i];
  EXPECT_EQ(outcome.own[1], wanted);
  for (const std::uint32_t i : places) {
    EXPECT_NEAR(outcome.mean[0][i], (x[0][i] + x[1][i] + x[2][i]) / 3, 1e-6);
  }
  EXPECT_EQ(method->traits().exchange, Exchange::kAllReduceSum);
}

TEST(Randomk, UnbiasedValuesAreScaledUp) {
  const auto method = make("randomk:ratio=0.25,unbiased=true");
  auto ranks = CoderRanks<double>::open(*method, Shape::vector(8), 1, 1, 9);
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8};
  const auto own = ranks.value().step({x}, 0).own[0];
  const Places places = testing::places_reference(stream_of(9, 0), 8, 2);
  for (std::size_t i = 0; i < 8; ++i) {
    const bool chosen = std::find(places.begin(), places.end(), i) != places.end();
    EXPECT_EQ(own[i], chosen ? 4 * x[i] : 0);
  }
}

TEST(Randomk, ClaimsOmegaOrDelta) {
  const Shape shape = Shape::vector(1000);
  const ErrorBound plain = make("randomk:ratio=0.01")->bound(shape);
  EXPECT_EQ(plain.kind, ErrorBound::Kind::kContraction);
  EXPECT_DOUBLE_EQ(plain.value, 0.01);
  const auto scaled = make("randomk:ratio=0.01,unbiased=true");
  EXPECT_EQ(scaled->bound(shape).kind, ErrorBound::Kind::kVariance);
  EXPECT_DOUBLE_EQ(scaled->bound(shape).value, 99);
  const auto verdict = check_pair(*scaled, shape, {.error_feedback = true});
  ASSERT_TRUE(verdict.has_value());
  EXPECT_DOUBLE_EQ(verdict.value().scale, 0.01);  // back to what was drawn
  EXPECT_FALSE(
      check_pair(*scaled, shape, {.error_feedback = true, .ef_scale_auto = false}).has_value());
  // omega of four levels of L-infinity over 10 values: (1 + 99)(1 + omega) - 1.
  const double omega = std::sqrt(10.0) / (2 * 7);
  EXPECT_NEAR(make("randomk:ratio=0.01,unbiased=true|qsgd:bits=4")->bound(shape).value,
              100 * (1 + omega) - 1, 1e-9);
}

TEST(Randomk, CodedValuesAreGathered) {
  const auto method = make("randomk:k=3|cast:bf16");
  EXPECT_EQ(method->traits().exchange, Exchange::kAllGather);
  EXPECT_EQ(method->max_payload_bytes(Shape::vector(100), DType::kF32, 0), 6u);
  auto ranks = CoderRanks<float>::open(*method, Shape::vector(4), 2);
  const auto outcome = ranks.value().step({{1.00390625F, 3, 5, 7}, {1, 3, 5, 7}}, 0);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  for (std::size_t i = 0; i < 4; ++i) {
    const float wanted = static_cast<float>(2 * i + 1);
    EXPECT_TRUE(outcome.mean[0][i] == wanted || outcome.mean[0][i] == 0) << i;
  }
  EXPECT_EQ(std::count(outcome.mean[0].begin(), outcome.mean[0].end(), 0.0F), 1);
}

TEST(Randomk, ElementsThatAreNotSentMustBeFiniteToo) {
  const auto method = make("randomk:k=1");
  for (std::size_t bad = 0; bad < 100; bad += 33) {
    auto ranks = CoderRanks<float>::open(*method, Shape::vector(100), 1);
    std::vector<float> x(100, 1.0F);
    x[bad] = std::numeric_limits<float>::quiet_NaN();
    const auto outcome = ranks.value().step({x}, 0);
    EXPECT_THAT(outcome.status, fails(Code::kInvalidArgument, "randomk",
                                      "element " + std::to_string(bad), "(100)", "nan"));
  }
}

TEST(Randomk, SpecsAreCanonical) {
  EXPECT_EQ(make("randomk:unbiased=false,ratio=0.10")->spec(), "randomk:ratio=0.1");
  EXPECT_EQ(make("randomk:k=9,unbiased=true|qsgd:4")->spec(),
            "randomk:k=9,unbiased=true|qsgd:bits=4");
  for (const char* spec : {"randomk", "randomk:ratio=0.1,k=3", "randomk:k=3,index=gaps"}) {
    EXPECT_FALSE(Registry::builtin().make(spec).has_value()) << spec;
  }
}

// T9: f = |x|^2 / 2 of 100 elements from 1 on, rate 0.01, 2,000 steps, five random places a step;
// |x| in the end, or where it passes 1e20.
double t9(std::string_view spec, bool feedback, double scale, std::uint64_t seed) {
  const auto method = make(spec);
  auto ranks = CoderRanks<double>::open(
      *method, Shape::vector(100), 1, seed, 77,
      [&](std::unique_ptr<Coder> inner, const Shape& shape, const Compressor::Placement& where) {
        if (!feedback) return inner;
        return std::move(make_ef14(std::move(inner), shape, where, scale)).value();
      });
  std::vector<double> x(100, 1.0);
  double square = 0;
  for (std::uint64_t step = 0; step < 2000 && square < 1e40; ++step) {
    std::vector<double> gradient = x;
    for (double& value : gradient) value *= 0.01;
    const auto outcome = ranks.value().step({gradient}, step);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
    square = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] -= outcome.mean[0][i];
      square += x[i] * x[i];
    }
  }
  return std::sqrt(square);
}

double median_t9(std::string_view spec, bool feedback, double scale) {
  std::vector<double> ends;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) ends.push_back(t9(spec, feedback, scale, seed));
  std::sort(ends.begin(), ends.end());
  return std::sqrt(ends[4] * ends[5]);
}

// Within a factor of ten of the known ends.
TEST(ToyT9, FeedbackOverScaledRandomPlacesDivergesUnlessDivided) {
  const auto expect_about = [](double seen, double wanted) {
    EXPECT_GT(seen, wanted / 10);
    EXPECT_LT(seen, wanted * 10);
  };
  expect_about(median_t9("randomk:k=5,unbiased=true", false, 1), 5.6e-8);
  EXPECT_GT(median_t9("randomk:k=5,unbiased=true", true, 1), 1e20);  // omega = 19
  expect_about(median_t9("randomk:k=5,unbiased=true", true, 1.0 / 20), 2.2e-10);
  expect_about(median_t9("randomk:k=5", true, 1), 2.2e-10);
}

}  // namespace
}  // namespace gradwire::randomk_test
