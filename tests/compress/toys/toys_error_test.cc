// T6 of the toys: E |C(x) - x|^2 / |x|^2 of x_i = sin(1 + i), i < 1000, in double, by 4,000 draws
// where the method draws. Figures: tests/reference/toys.py, without a draw.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/compress/toys/toys.h"

namespace gradwire::toys_error_test {
namespace {

using testing::norm;
using testing::subtract;
using testing::Workers;
using Vector = std::vector<double>;

constexpr std::size_t kElems = 1000;
constexpr int kDraws = 4000;

Vector sines() {
  Vector x(kElems);
  for (std::size_t i = 0; i < kElems; ++i) x[i] = std::sin(1.0 + static_cast<double>(i));
  return x;
}

double relative_error(Vector got, const Vector& x) {
  subtract(got, x);
  return std::pow(norm(got) / norm(x), 2);
}

TEST(ToyT6, TheVectorIsTheOneMeant) {
  EXPECT_NEAR(std::pow(norm(sines()), 2), 500.192572013, 1e-9);
}

TEST(ToyT6, ContractionsToTheDigits) {
  const Vector x = sines();
  const auto error = [&](const char* spec) {
    return relative_error(Workers<double>(spec, Shape::vector(kElems), 1).mean({x}), x);
  };
  EXPECT_NEAR(error("topk:k=10"), 0.980010, 5e-7);
  EXPECT_NEAR(error("topk:k=100"), 0.801703, 5e-7);
  EXPECT_NEAR(error("signsgd:bucket=tensor"), 0.189183, 5e-7);
}

struct Random {
  const char* spec;
  double variance;
};

class ToyT6Random : public ::testing::TestWithParam<Random> {};

TEST_P(ToyT6Random, VarianceAndUnbiasedness) {
  const Vector x = sines();
  Workers<double> worker(GetParam().spec, Shape::vector(kElems), 1);
  Vector sum(kElems);
  double variance = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    const Vector got = worker.mean({x});  // every step draws anew
    for (std::size_t i = 0; i < kElems; ++i) sum[i] += got[i] / kDraws;
    variance += relative_error(got, x) / kDraws;
  }
  EXPECT_NEAR(variance / GetParam().variance, 1, 0.02);
  EXPECT_LE(std::sqrt(relative_error(sum, x)), 1.3 * std::sqrt(GetParam().variance / kDraws));
}

INSTANTIATE_TEST_SUITE_P(Unbiased, ToyT6Random,
                         ::testing::Values(Random{"qsgd:levels=1,norm=l2,bucket=1000", 27.474854},
                                           Random{"qsgd:levels=4,norm=l2,bucket=1000", 6.118714},
                                           Random{"qsgd:levels=16,norm=l2,bucket=1000", 0.779678},
                                           Random{"qsgd:levels=127,norm=l2,bucket=1000", 0.0110698},
                                           Random{"qsgd:levels=4,norm=l2,bucket=100", 1.251146},
                                           Random{"randomk:k=10,unbiased=true", 99},
                                           Random{"randomk:k=100,unbiased=true", 9},
                                           Random{"qsgd:bits=8,bucket=1000", 2.0411e-5},
                                           Random{"qsgd:bits=4,bucket=1000", 0.00638260},
                                           Random{"qsgd:bits=2,bucket=1000", 0.273177},
                                           Random{"terngrad:clip=0", 0.273177},
                                           Random{"terngrad:shared=false,clip=0", 0.273177},
                                           Random{"natural", 0.0490884}),
                         [](const auto& info) {
                           std::string name;
                           for (const char c : std::string_view(info.param.spec))
                             name += std::isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace gradwire::toys_error_test
