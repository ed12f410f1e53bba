#include "compress/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/reference/hadamard_reference.h"

namespace gradwire::hadamard_test {
namespace {

const SliceKey kKey{3, {.step = 5, .tensor = 7, .rank = 1, .stage = 1, .first = 41}};

template <typename T>
std::vector<T> normal(std::size_t count) {
  const RandomStream data(9, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<T> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<T>(data.normal(i));
  return x;
}

// H(i, j) = (-1)^(number of common bits of i and j), over the square root of n.
TEST(Hadamard, IsSylvestersMatrix) {
  for (const std::size_t n : {1u, 2u, 4u, 8u, 16u, 32u, 256u}) {
    const auto x = normal<double>(n);
    auto y = x;
    HadamardSigns(kKey).forward<double>(0, y);
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < n; ++j) {
        const double flipped = testing::hadamard_minus(kKey, j) ? -x[j] : x[j];
        sum += std::popcount(i & j) % 2 == 0 ? flipped : -flipped;
      }
      ASSERT_NEAR(y[i], sum / std::sqrt(static_cast<double>(n)), 1e-12) << n << " " << i;
    }
  }
}

template <typename T>
void expect_reference_and_inverse() {
  for (const std::size_t n : {1u, 3u, 7u, 31u, 300u, 512u, 4097u}) {
    for (const std::size_t begin : {0u, 5u, 512u}) {
      const auto x = normal<T>(n);
      auto wanted = x;
      testing::hadamard_reference(kKey, begin, wanted);
      auto y = x;
      const HadamardSigns signs(kKey);
      signs.template forward<T>(begin, y);
      ASSERT_EQ(y, wanted) << n;
      signs.template inverse<T>(begin, y);
      const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-13;
      for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], x[i], tolerance) << n << " " << i;
    }
  }
}
TEST(Hadamard, ReferenceAndInverseForFloats) { expect_reference_and_inverse<float>(); }
TEST(Hadamard, ReferenceAndInverseForDoubles) { expect_reference_and_inverse<double>(); }

// An element as large as floats go is spread without overflow.
TEST(Hadamard, LargestFloatFits) {
  std::vector<float> x(512, 0.0f);
  x[17] = 3.4e38f;
  HadamardSigns(kKey).forward<float>(0, x);
  for (const float v : x) ASSERT_NEAR(std::abs(v), 3.4e38 / std::sqrt(512.0), 1e32);
}

// All ranks draw the same signs; another step draws others.
TEST(Hadamard, SignsAreShared) {
  const auto signs = [](int rank, std::uint64_t step) {
    SliceKey key = kKey;
    key.slice.rank = rank;
    key.slice.step = step;
    std::vector<float> x(64, 1.0f);
    HadamardSigns(key).forward<float>(0, x);
    return x;
  };
  EXPECT_EQ(signs(0, 1), signs(3, 1));
  EXPECT_NE(signs(0, 1), signs(0, 2));
}

}  // namespace
}  // namespace gradwire::hadamard_test
