// Optimisation toys in double, run through the registered coders: where signs fail, where error
// feedback repairs them, to the digits.
//
// The toys' own "scaled sign" has sign(0) = 0, the coder's has sign(0) = +1. The two agree wherever
// no entry of the compressed vector is exactly 0 (and on a vector of zeros alone, whose scale is
// 0): in T1, T2 and T3a gradients have no zero entries, in T3b from (1.2, 0.7) no p has, and from
// (1, 1), where p gets one after the first step, bands that hold for either choice are tested.
// Figures: tests/reference/toys.py, which knows the papers' formulas alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/philox.h"
#include "tests/compress/toys/toys.h"

namespace gradwire::toys_test {
namespace {

using testing::inner;
using testing::Memory;
using testing::norm;
using testing::subtract;
using testing::times;
using testing::Workers;
using Vector = std::vector<double>;

constexpr const char* kScaledSign = "signsgd:bucket=tensor";
constexpr const char* kBareSign = "signsgd:scale=none";
constexpr const char* kVote = "signsgd:vote=majority";

RandomStream draws(std::uint64_t seed) { return {seed, RandomUse::kTest, 1, 0, 0, 0}; }

double mean_of(const Vector& v) {
  double sum = 0;
  for (const double x : v) sum += x;
  return sum / static_cast<double>(v.size());
}

// T1: min x/4 on [-1, 1]; g = 4 with probability 1/4, else -1. Mean of x over the second half.
double t1(const char* spec, Memory memory, double step, std::uint64_t seed) {
  Workers<double> worker(spec, Shape::vector(1), 1, memory);
  const RandomStream random = draws(seed);
  constexpr std::uint64_t kSteps = 40000;
  double x = 0;
  double sum = 0;
  for (std::uint64_t t = 0; t < kSteps; ++t) {
    const double g = random.uniform(t) < 0.25f ? 4 : -1;
    x = std::clamp(
        x - (spec == kBareSign ? step * worker.mean({{g}})[0] : worker.mean({{step * g}})[0]), -1.0,
        1.0);
    if (t >= kSteps / 2) sum += x;
  }
  return sum / (kSteps / 2);
}

TEST(ToyT1, SignsGoToTheWrongEndAndFeedbackIsSgdToTheLastBit) {
  struct Case {
    double step, sign, sign_sd, sgd, sgd_sd;
  };
  for (const Case k :
       {Case{0.1, 0.94994, 0.0017, -0.390, 0.023}, Case{0.02, 0.98999, 0.0003, -0.843, 0.015}}) {
    Vector sign;
    Vector sgd;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      sign.push_back(t1(kBareSign, Memory::kNone, k.step, seed));
      sgd.push_back(t1("none", Memory::kNone, k.step, seed));
    }
    EXPECT_NEAR(mean_of(sign), k.sign, 3 * k.sign_sd);
    EXPECT_NEAR(mean_of(sgd), k.sgd, 3 * k.sgd_sd);
    EXPECT_EQ(t1(kScaledSign, Memory::kEf14, k.step, 0), sgd[0]);
  }
}

// T2: f = |x1 + x2|/2 + |x1 - x2| with sign(0) = +1 in the subgradient, step 0.1/sqrt(t + 1).
double f2(const Vector& x) { return std::abs(x[0] + x[1]) / 2 + std::abs(x[0] - x[1]); }

template <typename Visit>
void t2(const char* spec, Memory memory, const Visit& visit) {
  Workers<double> worker(spec, Shape::vector(2), 1, memory);
  Vector x{1.2, 0.8};
  for (int t = 0; t < 20000; ++t) {
    const double sum = x[0] + x[1] >= 0 ? 0.5 : -0.5;
    const double difference = x[0] - x[1] >= 0 ? 1 : -1;
    const double step = 0.1 / std::sqrt(t + 1.0);
    const Vector g{sum + difference, sum - difference};
    subtract(x, spec == kBareSign ? times(step, worker.mean({g})) : worker.mean({times(step, g)}));
    visit(x);
  }
}

TEST(ToyT2, SignsNeverLeaveTheLineFeedbackDoes) {
  for (const char* spec : {kBareSign, kScaledSign}) {
    double off = 0;
    double least = 2;
    double last = 0;
    t2(spec, Memory::kNone, [&](const Vector& x) {
      off = std::max(off, std::abs(x[0] + x[1] - 2));
      least = std::min(least, f2(x));
      last = f2(x);
    });
    EXPECT_LT(off, 1e-12) << spec;
    EXPECT_GE(least, 1 - 1e-12) << spec;
    EXPECT_NEAR(last, 1, 1e-6) << spec;
  }
  double feedback = 0;
  double sgd = 0;
  t2(kScaledSign, Memory::kEf14, [&](const Vector& x) { feedback = f2(x); });
  t2("none", Memory::kNone, [&](const Vector& x) { sgd = f2(x); });
  EXPECT_NEAR(feedback, 0.0007, 0.00005);
  EXPECT_NEAR(sgd, 0.00035, 0.000005);
}

// T3: f = (<a1,x>^2 + <a2,x>^2)/2, gradients 2 <ai,x> ai.
template <typename T>
std::vector<T> a3(int i) {
  return i == 0 ? std::vector<T>{1.5, -0.5} : std::vector<T>{-0.5, 1.5};
}
template <typename T>
double f3(const std::vector<T>& x) {
  const double p = static_cast<double>(inner(a3<T>(0), x));
  const double q = static_cast<double>(inner(a3<T>(1), x));
  return (p * p + q * q) / 2;
}
template <typename T>
std::vector<T> step3(int i, const std::vector<T>& x) {
  return times(T(0.05) * 2 * inner(a3<T>(i), x), a3<T>(i));
}

TEST(ToyT3a, OneWorkerUniformTerms) {
  for (const auto& [spec, memory] : {std::pair{kBareSign, Memory::kNone},
                                     {kScaledSign, Memory::kNone},
                                     {kScaledSign, Memory::kEf14},
                                     {"none", Memory::kNone}}) {
    Workers<double> worker(spec, Shape::vector(2), 1, memory);
    const RandomStream random = draws(3);
    Vector x{1, 1};
    double off = 0;
    double least = 1;
    for (std::uint64_t t = 0; t < 2000; ++t) {
      const Vector g = step3<double>(random.uniform(t) < 0.5f ? 0 : 1, x);
      // At <a,x> = 0 the toy's sign is (0, 0); a bare one-bit sign cannot say that.
      if (spec == kBareSign && g == Vector{0, 0}) continue;
      subtract(x, spec == kBareSign ? times(0.05, worker.mean({g})) : worker.mean({g}));
      off = std::max(off, std::abs(x[0] + x[1] - 2));
      least = std::min(least, f3(x));
    }
    if (memory == Memory::kNone && std::string_view(spec) != "none") {
      EXPECT_LT(off, 1e-12) << spec;
      EXPECT_GE(least, 1 - 1e-12) << spec;
    } else {
      EXPECT_LT(f3(x), 1e-60) << spec;
    }
  }
}

// f after 1, 10, 100 and 200 steps of two workers, worker i with a_i.
template <typename T>
std::array<double, 4> t3b(const char* spec, Memory memory, std::vector<T> x) {
  Workers<T> workers(spec, Shape::vector(2), 2, memory);
  std::array<double, 4> f{};
  for (int t = 1; t <= 200; ++t) {
    subtract(x, workers.mean({step3<T>(0, x), step3<T>(1, x)}));
    const std::array<int, 4> when{1, 10, 100, 200};
    for (std::size_t k = 0; k < when.size(); ++k) {
      if (when[k] == t) f[k] = f3(x);
    }
  }
  return f;
}

void expect_digits(const std::array<double, 4>& got, const std::array<double, 4>& wanted,
                   double tolerance) {
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(got[i] / wanted[i], 1, tolerance) << i << ": " << got[i];
  }
}

TEST(ToyT3b, TwoWorkersCancelWithoutMemory) {
  for (const char* spec : {kBareSign, kVote, kScaledSign}) {
    EXPECT_EQ(t3b<double>(spec, Memory::kNone, {1, 1}), (std::array<double, 4>{1, 1, 1, 1}))
        << spec;
    EXPECT_EQ(t3b<float>(spec, Memory::kNone, {1, 1}), (std::array<double, 4>{1, 1, 1, 1})) << spec;
  }
}

TEST(ToyT3b, SgdAndFeedbackToTheDigits) {
  const std::array<double, 4> sgd{0.9025, 3.584859e-1, 3.505267e-5, 1.228689e-9};
  expect_digits(t3b<double>("none", Memory::kNone, {1, 1}), sgd, 1e-6);
  expect_digits(t3b<float>("none", Memory::kNone, {1, 1}), sgd, 1e-2);
  const std::array<double, 4> feedback{1.0625, 3.4188287e-1, 2.4741766e-5, 6.3224650e-10};
  expect_digits(t3b<double>(kScaledSign, Memory::kEf14, {1.2, 0.7}), feedback, 1e-6);
  expect_digits(t3b<float>(kScaledSign, Memory::kEf14, {1.2f, 0.7f}), feedback, 1e-2);
  const auto tied = t3b<double>(kScaledSign, Memory::kEf14, {1, 1});
  EXPECT_EQ(tied[0], 1);
  EXPECT_GE(tied[1], 0.34);
  EXPECT_LE(tied[1], 0.43);
  EXPECT_LT(tied[2], 5e-5);
  EXPECT_LT(tied[3], 1e-9);
}

// T4: f_i = <a_i,x>^2 + |x|^2/4, top-1; |x| after 1, 2, 10, 100 and 1000 steps.
std::array<double, 5> t4(const char* spec, Memory memory) {
  Workers<double> workers(spec, Shape::vector(3), 3, memory);
  const std::vector<Vector> a{{-3, 2, 2}, {2, -3, 2}, {2, 2, -3}};
  constexpr double kStep = 0.01;
  Vector x{1, 1, 1};
  std::array<double, 5> length{};
  for (int t = 1; t <= 1000; ++t) {
    std::vector<Vector> g;
    for (const Vector& row : a) {
      g.push_back(times(2 * inner(row, x), row));
      for (std::size_t j = 0; j < 3; ++j) g.back()[j] = kStep * (g.back()[j] + x[j] / 2);
    }
    subtract(x, workers.mean(g));
    const std::array<int, 5> when{1, 2, 10, 100, 1000};
    for (std::size_t k = 0; k < when.size(); ++k) {
      if (when[k] == t) length[k] = norm(x);
    }
  }
  return length;
}

void expect_lengths(const std::array<double, 5>& got, const std::array<double, 5>& wanted) {
  for (std::size_t k = 0; k < 5; ++k)
    EXPECT_NEAR(got[k] / wanted[k], 1, 1e-6) << k << " " << got[k];
}

TEST(ToyT4, TopOneGrowsWithoutMemoryAndConvergesWithIt) {
  const auto bare = t4("topk:k=1", Memory::kNone);
  const double growth = 1 + 11 * 0.01 / 6;
  expect_lengths(bare, {std::sqrt(3.0) * growth, std::sqrt(3.0) * std::pow(growth, 2),
                        std::sqrt(3.0) * std::pow(growth, 10), std::sqrt(3.0) * 6.151711867625,
                        std::sqrt(3.0) * std::pow(growth, 1000)});
  expect_lengths(t4("topk:k=1", Memory::kEf14),
                 {1.763805, 1.711903, 1.608281, 0.5527285, 1.270721e-5});
  expect_lengths(t4("topk:k=1", Memory::kEf21),
                 {1.763805, 1.769234, 1.607590, 0.5522304, 1.263033e-5});
  expect_lengths(t4("none", Memory::kNone), {1.711844, 1.691872, 1.540264, 0.5356794, 1.386767e-5});
}

}  // namespace
}  // namespace gradwire::toys_test
