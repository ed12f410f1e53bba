#include "compress/atomo/atomo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "compress/atomo/spectrum.h"
#include "gradwire/registry.h"
#include "tests/reference/atomo_reference.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::atomo_test {
namespace {

using testing::CoderRanks;
using testing::make;
using Vector = std::vector<double>;

Vector wave(std::size_t count) {
  Vector x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto k = static_cast<double>(i);
    x[i] = std::cos(0.37 * k * k + 0.1 * k) / (1 + 0.1 * k);
  }
  return x;
}

double distance(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}
double length(const Vector& a) { return distance(a, Vector(a.size())); }

// The reference clamps once: 1 and 2/13 three times, 1.46 atoms in all.
TEST(AtomoDefects, WaterIsFilledUntilTheBudgetIsSpent) {
  EXPECT_EQ(fill_with_water(Vector{10, 1, 1, 1}, 2), (Vector{1, 1. / 3, 1. / 3, 1. / 3}));
  // Two rounds: 10 saturates, then 5 does as well.
  EXPECT_EQ(fill_with_water(Vector{10, 5, 1, 1, 1}, 3), (Vector{1, 1, 1. / 3, 1. / 3, 1. / 3}));
  EXPECT_EQ(fill_with_water(Vector{3, 1}, 0.5), (Vector{0.375, 0.125}));
  EXPECT_EQ(fill_with_water(Vector{3, 1, 0}, 2), (Vector{1, 1, 0}));
  EXPECT_EQ(fill_with_water(Vector{3, 1, 0}, 7), (Vector{1, 1, 0}));
  EXPECT_EQ(fill_with_water(Vector{0, 0}, 1), (Vector{0, 0}));
}

TEST(Atomo, ChancesAgreeWithBisection) {
  for (const double budget : {0.3, 1.0, 2.5, 4.0, 6.7}) {
    Vector weight;
    for (int k = 0; k < 9; ++k) weight.push_back(std::exp(-0.7 * k) + (k < 2 ? 3 : 0.01));
    const Vector got = fill_with_water(weight, budget);
    const Vector wanted = reference::water_levels(weight, budget);
    for (std::size_t k = 0; k < weight.size(); ++k) EXPECT_NEAR(got[k], wanted[k], 1e-12) << budget;
    EXPECT_NEAR(std::accumulate(got.begin(), got.end(), 0.0), budget, 1e-12);
  }
}

TEST(Atomo, AtomsAreTheSingularOnesAndAddUpToTheMatrix) {
  for (const auto& [a, c] : {std::pair<std::size_t, std::size_t>{5, 9}, {9, 5}, {6, 6}, {1, 7}}) {
    const Vector m = wave(a * c);
    reference::Matrix wide(a, c);
    for (std::size_t i = 0; i < m.size(); ++i) wide.data[i] = m[i];
    const Vector wanted = reference::singular_values(wide);
    const Spectrum spectrum = spectrum_of<double>(m, a, c);
    ASSERT_EQ(spectrum.weight.size(), wanted.size());
    Vector sum(m.size());
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      EXPECT_NEAR(spectrum.weight[k], wanted[k], 1e-7 * wanted[0]);
      for (std::size_t e = 0; e < sum.size(); ++e) {
        sum[e] += spectrum.weight[k] * spectrum.left[k * a + e / c] * spectrum.right[k * c + e % c];
      }
    }
    EXPECT_LT(distance(sum, m), 1e-13 * length(m));
  }
}

// Huge and tiny elements: squares alone would overflow and vanish.
TEST(Atomo, ScaleDoesNotMatter) {
  for (const double scale : {1e-200, 1e200}) {
    Vector m = wave(12);
    for (double& x : m) x *= scale;
    const auto method = make("atomo:budget=3");
    auto ranks = std::move(CoderRanks<double>::open(*method, Shape::matrix(3, 4), 1)).value();
    const auto out = ranks.step({m}, 0);
    ASSERT_TRUE(out.status.ok()) << out.status.message();
    for (std::size_t i = 0; i < m.size(); ++i)
      EXPECT_NEAR(out.mean[0][i] / scale, m[i] / scale, 1e-13);
  }
}

TEST(Atomo, ABudgetForAllIsExactAndZerosAreEmpty) {
  const auto method = make("atomo:budget=4");
  auto ranks = std::move(CoderRanks<float>::open(*method, {{4, 3, 2, 1}, 4}, 2)).value();
  std::vector<float> a(24);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::sin(1.0F + static_cast<float>(i * i));
  const auto out = ranks.step({a, a}, 0);
  ASSERT_TRUE(out.status.ok()) << out.status.message();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(out.mean[1][i], a[i], 1e-5F);
  const std::vector<float> zeros(24);
  const auto none = ranks.step({zeros, zeros}, 1);
  EXPECT_EQ(none.bytes[0][0].size(), 4u);  // a count of 0
  EXPECT_EQ(none.mean[0], zeros);
}

// Five equal singular values and one atom in hand: a third of all draws is empty. The reference
// draws again then, and its average is 1 / (1 - P(empty)) = 1.49 times the matrix.
TEST(Defect, D4_15_EmptyDrawsStayEmptyAndTheAverageIsTheMatrix) {
  const auto method = make("atomo:budget=1");
  const Shape shape = Shape::matrix(5, 5);
  auto ranks = std::move(CoderRanks<double>::open(*method, shape, 1)).value();
  Vector m(25);
  for (std::size_t i = 0; i < 5; ++i) m[6 * i] = 2;
  constexpr int kDraws = 4000;
  Vector sum(25);
  double error = 0;
  int empty = 0;
  double bytes = 0;
  for (int t = 0; t < kDraws; ++t) {
    const auto out = ranks.step({m}, static_cast<std::uint64_t>(t));
    ASSERT_TRUE(out.status.ok());
    bytes += static_cast<double>(out.bytes[0][0].size()) / kDraws;
    empty += out.bytes[0][0].size() == 4 ? 1 : 0;
    for (std::size_t i = 0; i < 25; ++i) sum[i] += out.own[0][i] / kDraws;
    error += std::pow(distance(out.own[0], m), 2) / kDraws;
  }
  const double chance = std::pow(0.8, 5);
  EXPECT_NEAR(static_cast<double>(empty) / kDraws, chance,
              5 * std::sqrt(chance * (1 - chance) / kDraws));
  // omega = 5 / 1 - 1: sum_k 4 (5 - 1) = 80; and the average's deviation is that over the draws.
  EXPECT_NEAR(error, 80, 6);
  EXPECT_LT(distance(sum, m), 2.5 * std::sqrt(80.0 / kDraws));
  EXPECT_NEAR(bytes, 4 + 8 * 11, 8 * 11 * 5 * std::sqrt(0.8 / kDraws));
}

TEST(Atomo, RanksDrawForThemselves) {
  const auto method = make("atomo:budget=2");
  auto ranks = std::move(CoderRanks<double>::open(*method, Shape::matrix(8, 8), 2)).value();
  const Vector m = wave(64);
  bool apart = false;
  for (std::uint64_t t = 0; t < 8; ++t) {
    const auto out = ranks.step({m, m}, t);
    apart = apart || out.own[0] != out.own[1];
    EXPECT_EQ(out.mean[0], out.mean[1]);
  }
  EXPECT_TRUE(apart);
}

TEST(Atomo, PayloadsThatCannotBeAreRefused) {
  const auto method = make("atomo:budget=4");
  const Shape shape = Shape::matrix(2, 2);
  auto ranks = std::move(CoderRanks<float>::open(*method, shape, 1)).value();
  const std::vector<float> m{1, 2, 3, 5};
  const auto sound = ranks.step({m}, 0).bytes[0][0];
  const auto refused = [&](std::size_t at, float value) {
    auto payload = sound;
    std::memcpy(payload.data() + at, &value, sizeof value);
    const ConstTensorView grad(reinterpret_cast<const std::byte*>(m.data()), shape, DType::kF32);
    Coder& coder = ranks.coder(0);
    EXPECT_TRUE(coder.begin(grad, 1, {}).ok());
    const ConstByteSpan received(payload);
    return coder.absorb(0, std::span(&received, 1), {}).code();
  };
  EXPECT_EQ(refused(4, -1.0F), Code::kCorruptPayload);  // a weight
  EXPECT_EQ(refused(4, HUGE_VALF), Code::kCorruptPayload);
  EXPECT_EQ(refused(8, 1.5F), Code::kCorruptPayload);  // of a unit vector
  EXPECT_EQ(refused(8, NAN), Code::kCorruptPayload);
  EXPECT_EQ(refused(0, 1e-44F), Code::kCorruptPayload);  // seven atoms
  EXPECT_EQ(refused(8, 0.25F), Code::kOk);
}

}  // namespace
}  // namespace gradwire::atomo_test
