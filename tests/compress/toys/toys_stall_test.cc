// T5 of the toys: eight least-squares problems that disagree, top-1 of full gradients. Error
// feedback stalls where its residuals are in the way, ef21 goes on to the minimum, and without
// memory nothing helps. Figures: tests/reference/toys.py.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/compress/toys/toys.h"
#include "tests/reference/powersgd_reference.h"

namespace gradwire::toys_stall_test {
namespace {

using testing::Memory;
using testing::subtract;
using testing::times;
using testing::Workers;
using Vector = std::vector<double>;

constexpr std::size_t kWorkers = 8;
constexpr std::size_t kRows = 30;
constexpr std::size_t kDim = 20;
constexpr double kSmoothness = 1.439444;

// f_w = |A x - b|^2 / 2 as x'Hx/2 - c'x + |b|^2 / 2, H = A'A, c = A'b.
struct Problem {
  std::vector<Vector> h = std::vector<Vector>(kDim, Vector(kDim));
  Vector c = Vector(kDim);
  double square = 0;  // |b|^2
};

double real(std::size_t i) { return static_cast<double>(i); }

Problem problem_of(std::size_t w) {
  Problem problem;
  for (std::size_t i = 0; i < kRows; ++i) {
    Vector a(kDim);
    for (std::size_t j = 0; j < kDim; ++j) {
      a[j] = std::cos(1 + 3.7 * real(i) + 2.3 * real(j * j) + 5.1 * real(w) + 0.9 * real(i * j)) /
             std::sqrt(30.0);
    }
    const double b = std::sin(1.3 * real(i) + 2.9 * real(w)) * (1 + real(w)) / std::sqrt(30.0);
    problem.square += b * b;
    for (std::size_t j = 0; j < kDim; ++j) {
      problem.c[j] += a[j] * b;
      for (std::size_t k = 0; k < kDim; ++k) problem.h[j][k] += a[j] * a[k];
    }
  }
  return problem;
}

class EightWorkers {
 public:
  EightWorkers() {
    for (std::size_t w = 0; w < kWorkers; ++w) {
      all_[w] = problem_of(w);
      mean_.square += all_[w].square / kWorkers;
      for (std::size_t j = 0; j < kDim; ++j) {
        mean_.c[j] += all_[w].c[j] / kWorkers;
        for (std::size_t k = 0; k < kDim; ++k) mean_.h[j][k] += all_[w].h[j][k] / kWorkers;
      }
    }
    reference::Matrix h(kDim, kDim);
    reference::Matrix c(kDim, 1);
    for (std::size_t j = 0; j < kDim; ++j) {
      for (std::size_t k = 0; k < kDim; ++k) h.at(j, k) = mean_.h[j][k];
      c.at(j, 0) = mean_.c[j];
    }
    const reference::Matrix x = reference::solve(h, c);
    minimum_.assign(x.data.begin(), x.data.end());
  }

  static Vector gradient(const Problem& problem, const Vector& x) {
    Vector g(kDim);
    for (std::size_t k = 0; k < kDim; ++k) {
      for (std::size_t j = 0; j < kDim; ++j) g[j] += problem.h[k][j] * x[k];
    }
    for (std::size_t j = 0; j < kDim; ++j) g[j] -= problem.c[j];
    return g;
  }
  const Problem& worker(std::size_t w) const { return all_[w]; }

  double least() const {
    double value = mean_.square / 2;  // f = |b|^2 / 2 - c'x / 2 where the gradient is 0
    for (std::size_t j = 0; j < kDim; ++j) value -= mean_.c[j] * minimum_[j] / 2;
    return value;
  }
  // f - f*, of a quadratic exactly d'Hd / 2.
  double above_least(Vector x) const {
    subtract(x, minimum_);
    double value = 0;
    for (std::size_t j = 0; j < kDim; ++j) {
      for (std::size_t k = 0; k < kDim; ++k) value += x[j] * mean_.h[j][k] * x[k] / 2;
    }
    return value;
  }

 private:
  std::array<Problem, kWorkers> all_;
  Problem mean_;
  Vector minimum_;
};

const EightWorkers& eight() {
  static const EightWorkers problem;
  return problem;
}

// The mean of f - f* over the last 5,000 of 40,000 steps of rate `share` / L.
double end_of(const char* spec, Memory memory, double share) {
  constexpr int kSteps = 40000;
  constexpr int kTail = 5000;
  Workers<double> workers(spec, Shape::vector(kDim), kWorkers, memory);
  Vector x(kDim);
  std::vector<Vector> g(kWorkers);
  double sum = 0;
  for (int t = 0; t < kSteps; ++t) {
    for (std::size_t w = 0; w < kWorkers; ++w) {
      g[w] = times(share / kSmoothness, EightWorkers::gradient(eight().worker(w), x));
    }
    subtract(x, workers.mean(g));
    if (t >= kSteps - kTail) sum += eight().above_least(x) / kTail;
  }
  return sum;
}

constexpr std::array<double, 3> kShares{0.2, 0.1, 0.05};

TEST(ToyT5, TheProblemIsTheOneMeant) { EXPECT_NEAR(eight().least(), 6.503114369, 1e-9); }

TEST(ToyT5, FeedbackStallsByTheSquareOfTheRate) {
  const std::array<double, 3> wanted{8.3e-3, 2.1e-3, 5.1e-4};
  std::array<double, 3> seen{};
  for (std::size_t i = 0; i < 3; ++i) {
    seen[i] = end_of("topk:k=1", Memory::kEf14, kShares[i]);
    EXPECT_NEAR(seen[i] / wanted[i], 1, 0.05) << seen[i];
  }
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_GT(seen[i - 1] / seen[i], 3);
    EXPECT_LT(seen[i - 1] / seen[i], 5);
  }
}

TEST(ToyT5, Ef21GoesAsFarAsGradientDescent) {
  EXPECT_LT(end_of("topk:k=1", Memory::kEf21, 0.2), 1e-14);
  for (const double share : {0.1, 0.05}) {
    const double wanted = end_of("none", Memory::kNone, share);
    EXPECT_NEAR(end_of("topk:k=1", Memory::kEf21, share) / wanted, 1, 0.1) << wanted;
  }
}

TEST(ToyT5, WithoutMemoryNoRateHelps) {
  for (const double share : kShares) {
    EXPECT_NEAR(end_of("topk:k=1", Memory::kNone, share) / 0.137, 1, 0.01) << share;
  }
}

}  // namespace
}  // namespace gradwire::toys_stall_test
