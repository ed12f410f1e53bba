// The products of few rows beside sums in double, written as their definitions.
#include "trainer/layers/few_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "trainer/layers/linear.h"

namespace gradwire::few_rows_test {
namespace {

// Values in [-1, 1) that no two places share, without a pattern that sums would cancel in.
template <typename T>
std::vector<T> values(std::int64_t count, unsigned salt) {
  std::vector<T> filled(static_cast<std::size_t>(count));
  std::uint32_t state = 2463534242U + 7919U * salt;
  for (T& value : filled) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    value = static_cast<T>(static_cast<double>(state) / 2147483648.0 - 1);
  }
  return filled;
}

// A sum of n products of factors up to 1, in any order and with rounded or fused steps, is off by
// at most n roundings of at most n, in T (Higham, Accuracy and Stability, 2002, eq. 3.5); sums of
// these signs stay far below.
template <typename T>
double bound(std::int64_t terms) {
  return static_cast<double>(terms) * std::sqrt(static_cast<double>(terms)) *
         static_cast<double>(std::numeric_limits<T>::epsilon());
}

// Element (row, column) of the sum over k of a[row, k] b[k, column], by strides.
struct Strided {
  const double* data;
  std::int64_t row;
  std::int64_t column;
  double at(std::int64_t r, std::int64_t c) const { return data[r * row + c * column]; }
};

template <typename T>
void expect_product(const std::vector<T>& seen, std::int64_t rows, std::int64_t columns,
                    std::int64_t terms, Strided a, Strided b) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::int64_t k = 0; k < terms; ++k) sum += a.at(r, k) * b.at(k, c);
      ASSERT_NEAR(static_cast<double>(seen[static_cast<std::size_t>(r * columns + c)]), sum,
                  bound<T>(terms))
          << "row " << r << ", column " << c;
    }
  }
}

template <typename T>
std::vector<double> widened(const std::vector<T>& narrow) {
  return {narrow.begin(), narrow.end()};
}

template <typename T>
void expect_definitions(const LinearSize& size) {
  SCOPED_TRACE(::testing::Message() << size.rows << " rows, " << size.in << " to " << size.out);
  const auto x = values<T>(size.rows * size.in, 1);
  const auto w = values<T>(size.out * size.in, 2);
  const auto dy = values<T>(size.rows * size.out, 3);
  const auto wide_x = widened(x);
  const auto wide_w = widened(w);
  const auto wide_dy = widened(dy);
  const T unwritten = std::numeric_limits<T>::quiet_NaN();

  std::vector<T> y(dy.size(), unwritten);
  rows_forward(size, x.data(), w.data(), y.data());
  expect_product(y, size.rows, size.out, size.in, {wide_x.data(), size.in, 1},
                 {wide_w.data(), 1, size.in});
  std::vector<T> dx(x.size(), unwritten);
  rows_backward_input(size, dy.data(), w.data(), dx.data());
  expect_product(dx, size.rows, size.in, size.out, {wide_dy.data(), size.out, 1},
                 {wide_w.data(), size.in, 1});
  std::vector<T> dw(w.size(), unwritten);
  rows_backward_weight(size, dy.data(), x.data(), dw.data());
  expect_product(dw, size.out, size.in, size.rows, {wide_dy.data(), 1, size.out},
                 {wide_x.data(), size.in, 1});
}

// Whole tiles, and every kind of rest: of rows, of lanes, of a tile's width, of weights' rows.
const std::vector<LinearSize> kSizes{{4, 64, 64},  {1, 1, 1},     {3, 5, 7},   {4, 16, 4},
                                     {5, 67, 66},  {7, 130, 129}, {8, 63, 65}, {32, 200, 70},
                                     {33, 31, 10}, {2, 300, 3}};

TEST(FewRows, FloatsAreTheProducts) {
  for (const LinearSize& size : kSizes) expect_definitions<float>(size);
}

TEST(FewRows, DoublesAreTheProducts) {
  for (const LinearSize& size : kSizes) expect_definitions<double>(size);
}

TEST(FewRows, ARowHasTheSameBitsAloneAndAmongOthers) {
  const LinearSize all{11, 131, 70};
  const auto x = values<float>(all.rows * all.in, 1);
  const auto w = values<float>(all.out * all.in, 2);
  const auto dy = values<float>(all.rows * all.out, 3);
  std::vector<float> y(dy.size());
  std::vector<float> dx(x.size());
  rows_forward(all, x.data(), w.data(), y.data());
  rows_backward_input(all, dy.data(), w.data(), dx.data());
  const LinearSize one{1, all.in, all.out};
  for (std::int64_t r = 0; r < all.rows; ++r) {
    std::vector<float> alone(static_cast<std::size_t>(all.out));
    rows_forward(one, x.data() + r * all.in, w.data(), alone.data());
    EXPECT_EQ(std::memcmp(alone.data(), y.data() + r * all.out, alone.size() * sizeof(float)), 0);
    alone.resize(static_cast<std::size_t>(all.in));
    rows_backward_input(one, dy.data() + r * all.out, w.data(), alone.data());
    EXPECT_EQ(std::memcmp(alone.data(), dx.data() + r * all.in, alone.size() * sizeof(float)), 0);
  }
}

// A wide layer takes these products up to 64 rows and a general one from 65 on: the rows that both
// have differ by rounding alone.
TEST(FewRows, AWideLayerComputesTheSameEitherWay) {
  constexpr std::int64_t kWide = 1024;
  ASSERT_TRUE(has_few_rows({64, kWide, kWide}));
  ASSERT_FALSE(has_few_rows({65, kWide, kWide}));
  ASSERT_FALSE(has_few_rows({4, kWide, kWide - 1}));
  const Linear<float> layer(kWide, kWide);
  const auto params = values<float>(kWide * kWide + kWide, 1);
  const auto x = values<float>(65 * kWide, 2);
  const auto dy = values<float>(65 * kWide, 3);
  std::vector<std::vector<float>> y;
  std::vector<std::vector<float>> dx;
  for (const std::int64_t rows : {64, 65}) {
    const auto elems = static_cast<std::size_t>(rows * kWide);
    y.emplace_back(elems);
    dx.emplace_back(elems);
    LayerPass<float> pass;
    pass.rows = rows;
    pass.params = params;
    pass.x = std::span(x).first(elems);
    pass.y = y.back();
    layer.forward(pass);
    layer.backward_input(pass, std::span(dy).first(elems), dx.back());
  }
  for (std::size_t i = 0; i < y[0].size(); ++i) {
    ASSERT_NEAR(y[0][i], y[1][i], bound<float>(kWide)) << i;
    ASSERT_NEAR(dx[0][i], dx[1][i], bound<float>(kWide)) << i;
  }
}

TEST(FewRows, AWideLayersWeightGradientIsTheSumOverItsRows) {
  constexpr std::int64_t kWide = 1024;
  constexpr std::int64_t kRows = 64;
  const Linear<float> layer(kWide, kWide);
  const auto params = values<float>(kWide * kWide + kWide, 1);
  const auto x = values<float>(kRows * kWide, 2);
  const auto dy = values<float>(kRows * kWide, 3);
  std::vector<float> gradient(params.size());
  LayerPass<float> pass;
  pass.rows = kRows;
  pass.params = params;
  pass.x = x;
  layer.backward_params(pass, dy, gradient);
  const auto check = [&](std::int64_t o, std::int64_t i) {
    double sum = 0;
    for (std::int64_t r = 0; r < kRows; ++r) {
      sum += static_cast<double>(dy[static_cast<std::size_t>(r * kWide + o)]) *
             (i < kWide ? x[static_cast<std::size_t>(r * kWide + i)] : 1.0F);
    }
    const std::int64_t at = i < kWide ? o * kWide + i : kWide * kWide + o;
    EXPECT_NEAR(gradient[static_cast<std::size_t>(at)], sum, bound<float>(kRows)) << o << ", " << i;
  };
  for (std::int64_t o = 0; o < kWide; o += 93) {
    for (std::int64_t i = 0; i <= kWide; i += 128) check(o, i);
  }
}

}  // namespace
}  // namespace gradwire::few_rows_test
