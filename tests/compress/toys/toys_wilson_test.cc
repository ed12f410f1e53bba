// T10 of the toys: least squares with more unknowns than samples (Wilson et al. 2017, as in
// Karimireddy et al. 2019, section 5.2). Every method fits the training half; whether it also fits
// the other half depends on whether its steps stay in the span of the gradients. Those of signs do
// not. Figures: tests/reference/toys.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/philox.h"
#include "tests/compress/toys/toys.h"

namespace gradwire::toys_wilson_test {
namespace {

using testing::inner;
using testing::Memory;
using testing::norm;
using testing::times;
using testing::Workers;
using Vector = std::vector<double>;

constexpr std::size_t kRows = 200;
constexpr std::size_t kTrain = 100;
constexpr std::size_t kDim = 1200;
constexpr int kSteps = 4000;
constexpr std::uint64_t kSeeds = 10;

// A row by its elements other than 0: the first is y, all others are 1.
struct Row {
  double y = 0;
  std::vector<std::size_t> ones;
};

double times_row(const Row& row, const Vector& w) {
  double sum = row.y * w[0];
  for (const std::size_t j : row.ones) sum += w[j];
  return sum;
}
void add_row(const Row& row, double factor, Vector& to) {
  to[0] += factor * row.y;
  for (const std::size_t j : row.ones) to[j] += factor;
}

struct Data {
  std::vector<Row> train, test;
};

Data data_of(std::uint64_t seed) {
  const RandomStream random(seed, RandomUse::kTest, 10, 0, 0, 0);
  std::vector<Row> rows(kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    rows[i].y = random.uniform(i) < 0.6F ? 1 : -1;
    rows[i].ones = {1, 2};
    for (std::size_t k = 0; k < (rows[i].y > 0 ? 1U : 5U); ++k) {
      rows[i].ones.push_back(3 + 5 * i + k);
    }
  }
  for (std::size_t i = kRows; i > 1; --i) std::swap(rows[i - 1], rows[random.word(kRows + i) % i]);
  const auto half = rows.begin() + kTrain;
  return {{rows.begin(), half}, {half, rows.end()}};
}

// |Xw - y|^2 / n; the gradient is that of half of it.
double loss(const std::vector<Row>& rows, const Vector& w) {
  double sum = 0;
  for (const Row& row : rows) sum += std::pow(times_row(row, w) - row.y, 2);
  return sum / static_cast<double>(rows.size());
}
double accuracy(const std::vector<Row>& rows, const Vector& w) {
  const auto right = [&w](const Row& row) { return times_row(row, w) * row.y > 0; };
  return static_cast<double>(std::count_if(rows.begin(), rows.end(), right)) /
         static_cast<double>(rows.size());
}
// Of w to the span of the training rows, over |w|. Gram and Schmidt, twice.
double distance_to_span(const std::vector<Row>& rows, Vector w) {
  const double length = norm(w);
  std::vector<Vector> basis;
  const auto project_out = [&basis](Vector& v) {
    for (int pass = 0; pass < 2; ++pass) {
      for (const Vector& q : basis) {
        const double along = inner(q, v);
        for (std::size_t j = 0; j < kDim; ++j) v[j] -= along * q[j];
      }
    }
  };
  for (const Row& row : rows) {
    Vector v(kDim);
    add_row(row, 1, v);
    project_out(v);
    basis.push_back(times(1 / norm(v), v));
  }
  project_out(w);
  return norm(w) / length;
}

// What is taken off w for the gradient g in step t.
using Update = std::function<Vector(const Vector& g, int t)>;
using MakeUpdate = std::function<Update()>;

struct Ends {
  double train = 0;  // the largest of the seeds' losses
  double test = 0;   // medians
  double accuracy = 0;
  double distance = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

Ends run(const MakeUpdate& make) {
  Ends ends;
  std::vector<double> test, right, distance;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Data data = data_of(seed);
    const Update update = make();
    Vector w(kDim);
    for (int t = 0; t < kSteps; ++t) {
      Vector g(kDim);
      for (const Row& row : data.train) add_row(row, (times_row(row, w) - row.y) / kTrain, g);
      testing::subtract(w, update(g, t));
    }
    ends.train = std::max(ends.train, loss(data.train, w));
    test.push_back(loss(data.test, w));
    right.push_back(accuracy(data.test, w));
    distance.push_back(distance_to_span(data.train, w));
  }
  ends.test = median(std::move(test));
  ends.accuracy = median(std::move(right));
  ends.distance = median(std::move(distance));
  return ends;
}

constexpr double kRate = 0.3;
double sign_rate(int t) { return 0.005 * (1 - static_cast<double>(t) / kSteps); }

// A registered method that is fed the rate times the gradient.
Ends run_fed(const char* spec, Memory memory) {
  return run([spec, memory]() -> Update {
    auto worker = std::make_shared<Workers<double>>(spec, Shape::vector(kDim), 1, memory);
    return [worker](const Vector& g, int) { return worker->mean({times(kRate, g)}); };
  });
}

double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

void expect_generalises(const Ends& ends, double span) {
  EXPECT_LT(ends.train, 1e-7);
  EXPECT_NEAR(ends.test, 1.6e-3, 0.4e-3);
  EXPECT_EQ(ends.accuracy, 1);
  EXPECT_LT(ends.distance, span);
}

TEST(ToyT10, FeedbackStaysInTheSpanOfTheGradientsAsSgdDoes) {
  expect_generalises(run_fed("none", Memory::kNone), 1e-8);
  expect_generalises(run_fed("signsgd:bucket=tensor", Memory::kEf14), 1e-8);
}

// With sign(0) = 0, by the formulas.
TEST(ToyT10, SignsFitTheTrainingHalfAlone) {
  const Ends signs = run([]() -> Update {
    return [](const Vector& g, int t) {
      Vector step(kDim);
      for (std::size_t j = 0; j < kDim; ++j) step[j] = sign_rate(t) * sign(g[j]);
      return step;
    };
  });
  const Ends scaled = run([]() -> Update {
    return [](const Vector& g, int) {
      double sum = 0;
      for (const double x : g) sum += std::abs(x);
      Vector step(kDim);
      for (std::size_t j = 0; j < kDim; ++j) step[j] = kRate * sum / kDim * sign(g[j]);
      return step;
    };
  });
  for (const Ends& ends : {signs, scaled}) {
    EXPECT_LT(ends.train, 1e-7);
    EXPECT_NEAR(ends.test, 0.66, 0.1);
    EXPECT_GE(ends.accuracy, 0.46);
    EXPECT_LE(ends.accuracy, 0.73);
    EXPECT_NEAR(ends.distance, 0.97, 0.02);
  }
}

// One bit has no zero: what no sample of the training half has is moved too.
TEST(ToyT10, OneBitMovesWhatNoGradientMoves) {
  const Ends scaled = run_fed("signsgd:bucket=tensor", Memory::kNone);
  EXPECT_NEAR(scaled.test, 0.15, 0.05);
  EXPECT_EQ(scaled.accuracy, 1);
  EXPECT_NEAR(scaled.distance, 0.99, 0.01);
  const Ends bare = run([]() -> Update {
    auto worker = std::make_shared<Workers<double>>("signsgd:scale=none", Shape::vector(kDim), 1);
    return [worker](const Vector& g, int t) { return times(sign_rate(t), worker->mean({g})); };
  });
  EXPECT_GT(bare.test, 700);
  EXPECT_NEAR(bare.accuracy, 0.40, 0.06);
  EXPECT_NEAR(bare.distance, 1, 0.01);
}

}  // namespace
}  // namespace gradwire::toys_wilson_test
