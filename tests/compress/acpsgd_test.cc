#include "compress/acpsgd/acpsgd.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "base/elements.h"
#include "compress/error_feedback/ef14.h"
#include "gradwire/registry.h"
#include "tests/reference/atomo_reference.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::acpsgd_test {
namespace {

using reference::Matrix;
using testing::CoderRanks;
using testing::make;
using Vector = std::vector<double>;

CoderRanks<double> open(const Compressor& compressor, const Shape& shape, int size,
                        const CoderRanks<double>::Wrap& wrap = nullptr) {
  return std::move(CoderRanks<double>::open(compressor, shape, size, 1, 77, wrap)).value();
}

// "p" or "q" of a rank, (r, length).
std::span<double> factor(CoderRanks<double>& ranks, int rank, std::string_view name) {
  for (const NamedTensor& entry : ranks.coder(rank).state()) {
    if (entry.name == name) return elements<double>(entry.tensor);
  }
  return {};
}

// The factor's rows as columns.
Matrix columns(std::span<const double> rows, std::size_t count) {
  Matrix m(count, rows.size() / count);
  for (std::size_t i = 0; i < rows.size(); ++i) m.data[i] = rows[i];
  return transpose(m);
}
Matrix matrix(const Vector& values, std::size_t a) {
  Matrix m(a, values.size() / a);
  for (std::size_t i = 0; i < values.size(); ++i) m.data[i] = values[i];
  return m;
}
Vector values(const Matrix& m) { return {m.data.begin(), m.data.end()}; }

Vector wave(std::size_t count, double phase) {
  Vector x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto k = static_cast<double>(i);
    x[i] = std::cos(0.37 * k * k + phase * (1 + 0.1 * k));
  }
  return x;
}

double distance(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}
double length(const Vector& a) { return distance(a, Vector(a.size())); }

// M_0 = [3 0; 4 0], M_1 = [0 0; 0 5]. Even, Q = (1, 0): P_0 = (3, 4), P_1 = 0. Then P = (1.5, 2),
// P^ = (0.6, 0.8): Q_0 = (5, 0), Q_1 = (0, 4).
TEST(AcpSgd, TwoStepsByHand) {
  const auto method = make("acpsgd:rank=1");
  auto ranks = open(*method, Shape::matrix(2, 2), 2);
  for (int r = 0; r < 2; ++r) {
    factor(ranks, r, "q")[0] = 2;
    factor(ranks, r, "q")[1] = 0;
  }
  const std::vector<Vector> grads{{3, 0, 4, 0}, {0, 0, 0, 5}};
  const auto even = ranks.step(grads, 0);
  ASSERT_TRUE(even.status.ok()) << even.status.message();
  EXPECT_EQ(even.bytes.size(), 1u);  // one round
  EXPECT_LT(distance(even.own[0], {3, 0, 4, 0}), 1e-14);
  EXPECT_LT(distance(even.own[1], {0, 0, 0, 0}), 1e-14);
  EXPECT_LT(distance(even.mean[0], {1.5, 0, 2, 0}), 1e-14);
  const auto odd = ranks.step(grads, 1);
  ASSERT_TRUE(odd.status.ok()) << odd.status.message();
  EXPECT_LT(distance(odd.own[1], {0, 2.4, 0, 3.2}), 1e-14);
  EXPECT_LT(distance(odd.mean[0], {1.5, 1.2, 2, 1.6}), 1e-14);
  EXPECT_EQ(odd.mean[1], odd.mean[0]);
  EXPECT_NEAR(factor(ranks, 1, "q")[0], 2.5, 1e-14);
  EXPECT_NEAR(factor(ranks, 1, "q")[1], 2, 1e-14);
}

TEST(AcpSgd, AgreesWithProjectionByElimination) {
  constexpr std::size_t kA = 7;
  constexpr std::size_t kC = 12;
  for (const std::size_t r : {std::size_t{1}, std::size_t{3}}) {
    const auto method = make("acpsgd:rank=" + std::to_string(r));
    auto ranks = open(*method, Shape::matrix(kA, kC), 3);
    for (std::uint64_t t = 0; t < 6; ++t) {
      const bool even = t % 2 == 0;
      const Matrix basis = columns(factor(ranks, 0, even ? "q" : "p"), r);
      const auto phase = static_cast<double>(t);
      const std::vector<Vector> grads{wave(kA * kC, phase), wave(kA * kC, phase + 0.4),
                                      wave(kA * kC, phase + 0.7)};
      const auto out = ranks.step(grads, t);
      ASSERT_TRUE(out.status.ok()) << out.status.message();
      EXPECT_EQ(out.bytes[0][0].size(), 8 * r * (even ? kA : kC));
      Vector mean(kA * kC);
      for (std::size_t i = 0; i < 3; ++i) {
        const Vector own = values(reference::acpsgd_own(matrix(grads[i], kA), basis, even));
        EXPECT_LT(distance(out.own[i], own), 1e-11) << t;
        for (std::size_t e = 0; e < own.size(); ++e) mean[e] += own[e] / 3;
      }
      EXPECT_LT(distance(out.mean[0], mean), 1e-11) << t;
      // What the next step starts from spans the mean.
      const Matrix next = columns(factor(ranks, 2, even ? "p" : "q"), r);
      EXPECT_LT(distance(values(reference::acpsgd_own(matrix(mean, kA), next, !even)), mean), 1e-9);
    }
  }
}

// Two steps are one power iteration: the errors of powersgd on one fixed matrix, computed outside.
TEST(AcpSgd, WarmStartConvergesToTheBestRank) {
  constexpr std::size_t kA = 48;
  constexpr std::size_t kC = 64;
  Vector m(kA * kC);
  for (std::size_t i = 0; i < kA; ++i) {
    for (std::size_t j = 0; j < kC; ++j) {
      const auto a = static_cast<double>(i);
      const auto b = static_cast<double>(j);
      m[i * kC + j] = std::cos(0.3 * a + 0.11 * b * b) / (1 + std::abs(a - b));
    }
  }
  const struct {
    std::size_t rank;
    std::array<double, 4> error;  // after 1, 2, 5 and 200 iterations
  } cases[] = {{1, {0.975310532, 0.934017190, 0.890228276, 0.882211310}},
               {2, {0.896421299, 0.819790433, 0.776561803, 0.773955802}}};
  for (const auto& one : cases) {
    const auto method = make("acpsgd:rank=" + std::to_string(one.rank));
    auto ranks = open(*method, Shape::matrix(kA, kC), 1);
    const auto q = factor(ranks, 0, "q");
    for (std::size_t i = 0; i < q.size(); ++i) {
      q[i] = std::cos(1 + static_cast<double>(i % kC) + 7 * static_cast<double>(i / kC));
    }
    std::size_t next = 0;
    for (std::uint64_t t = 0; t < 400; ++t) {
      const Vector got = ranks.step({m}, t).mean[0];
      const std::uint64_t iterations = (t + 1) / 2;
      const std::array<std::uint64_t, 4> when{1, 2, 5, 200};
      if (t % 2 == 0 || iterations != when[next]) continue;
      EXPECT_NEAR(distance(got, m) / length(m), one.error[next], 1e-8) << t;
      next = std::min<std::size_t>(next + 1, 3);
    }
  }
}

// The reference leaves the world's size at 1: results come out n times the mean.
TEST(AcpSgdDefects, EqualGradientsOnFourRanksGiveWhatOneRankGets) {
  const auto method = make("acpsgd:rank=2");
  auto one = open(*method, Shape::matrix(6, 8), 1);
  auto four = open(*method, Shape::matrix(6, 8), 4);
  for (std::uint64_t t = 0; t < 4; ++t) {
    const Vector g = wave(48, 0.3);
    EXPECT_LT(distance(four.step({g, g, g, g}, t).mean[3], one.step({g}, t).mean[0]), 1e-12);
  }
}

// And draws the first factor apart on every rank, and has no answer to a layer of zeros.
TEST(AcpSgdDefects, FirstFactorsAreAlikeAndZerosStayZeros) {
  const auto method = make("acpsgd:rank=2");
  auto ranks = open(*method, Shape::matrix(6, 8), 2);
  for (const char* name : {"p", "q"}) {
    const auto a = factor(ranks, 0, name);
    const auto b = factor(ranks, 1, name);
    EXPECT_EQ(Vector(a.begin(), a.end()), Vector(b.begin(), b.end()));
    EXPECT_NE(a[0], 0);
  }
  const Vector zeros(48);
  for (std::uint64_t t = 0; t < 3; ++t) EXPECT_EQ(ranks.step({zeros, zeros}, t).mean[0], zeros);
  // A direction that vanished comes back with the gradients.
  const Vector g = wave(48, 1);
  Vector got;
  for (std::uint64_t t = 3; t < 9; ++t) got = ranks.step({g, g}, t).mean[1];
  EXPECT_LT(distance(got, g), 0.99 * length(g));
}

// The reference normalises by the length of all equal-shaped matrices together.
TEST(AcpSgdDefects, TwinsDoNotKnowOfEachOther) {
  const auto method = make("acpsgd:rank=1");
  auto twin = open(*method, Shape::matrix(5, 5), 1);
  auto alone = open(*method, Shape::matrix(5, 5), 1);
  for (std::uint64_t t = 0; t < 4; ++t) {
    const Vector small = wave(25, 0.2);
    EXPECT_EQ(twin.step({small}, t).mean[0], alone.step({small}, t).mean[0]);
  }
}

TEST(AcpSgd, SquareMatricesAtFullRankAreExact) {
  const auto method = make("acpsgd:rank=9,min_rate=0");
  auto ranks = open(*method, Shape::matrix(5, 5), 2);
  for (std::uint64_t t = 0; t < 4; ++t) {
    const Vector a = wave(25, 0.1);
    const Vector b = wave(25, 0.9);
    Vector mean(25);
    for (std::size_t i = 0; i < 25; ++i) mean[i] = (a[i] + b[i]) / 2;
    EXPECT_LT(distance(ranks.step({a, b}, t).mean[0], mean), 1e-12);
  }
}

// One factor a step, half of both on average, decides whether a matrix travels dense.
TEST(AcpSgd, MatricesThatWouldNotShrinkTravelDense) {
  const auto square = make("acpsgd:rank=9");  // r = 5, 25 values of a factor
  auto ranks = open(*square, Shape::matrix(5, 5), 2);
  EXPECT_TRUE(factor(ranks, 0, "p").empty());
  const Vector g = wave(25, 0.4);
  EXPECT_EQ(ranks.step({g, g}, 0).mean[1], g);
  EXPECT_EQ(square->bound(Shape::matrix(5, 5)).value, 1);
  const auto half = [](const std::string& spec) {
    return make(spec)->max_payload_bytes(Shape::matrix(8, 8), DType::kF32, 0) / sizeof(float);
  };
  EXPECT_EQ(half("acpsgd:rank=4"), 32u);
  EXPECT_EQ(half("acpsgd:rank=4,min_rate=2"), 64u);  // 2 * 32 are no less
  EXPECT_EQ(half("acpsgd:rank=3,min_rate=2"), 24u);
  EXPECT_EQ(make("acpsgd:rank=3,min_rate=2")->spec(), "acpsgd:rank=3,min_rate=2");
}

// What stays behind is the matrix less this rank's own product, not less the average one.
TEST(AcpSgd, FeedbackTakesTheFactorOfThisRank) {
  const auto method = make("acpsgd:rank=1");
  auto ranks = open(*method, Shape::matrix(4, 6), 2, [](auto inner, const Shape& s, const auto& w) {
    return std::move(make_ef14(std::move(inner), s, w)).value();
  });
  const Matrix q = columns(factor(ranks, 1, "q"), 1);
  const std::vector<Vector> grads{wave(24, 0.5), wave(24, 2.5)};
  ASSERT_TRUE(ranks.step(grads, 0).status.ok());
  Vector wanted = grads[1];
  const Vector own = values(reference::acpsgd_own(matrix(grads[1], 4), q, true));
  for (std::size_t i = 0; i < 24; ++i) wanted[i] -= own[i];
  const auto error = factor(ranks, 1, "error");
  EXPECT_LT(distance(Vector(error.begin(), error.end()), wanted), 1e-13);
}

}  // namespace
}  // namespace gradwire::acpsgd_test
