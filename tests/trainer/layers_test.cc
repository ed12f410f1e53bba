// Hand-computed values, and agreement with the slow reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/reference/layers_reference.h"
#include "tests/trainer/layer_run.h"
#include "trainer/layers/avg_pool2d.h"
#include "trainer/layers/causal_attention.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/cross_entropy.h"
#include "trainer/layers/embedding.h"
#include "trainer/layers/fixed_sum.h"
#include "trainer/layers/gelu.h"
#include "trainer/layers/layer_norm.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/loss.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/relu.h"

namespace gradwire::layers_test {
namespace {

using Values = std::vector<double>;
using ::testing::ElementsAre;

// One forward and one backward of `layer`.
LayerRun<double> run(const Layer<double>& layer, std::int64_t rows, const Values& x,
                     const Values& params, const Values& dy) {
  LayerRun<double> result(layer, rows, x, params);
  result.forward();
  result.backward(dy);
  return result;
}

TEST(Linear, ByHand) {
  const Linear<double> layer(2, 3);
  // W = [1 2; 3 4; 5 6], b = [10 20 30], x = [1 -1; 2 0]
  const LayerRun<double> r =
      run(layer, 2, {1, -1, 2, 0}, {1, 2, 3, 4, 5, 6, 10, 20, 30}, {1, 0, 0, 0, 1, 2});
  EXPECT_THAT(r.y, ElementsAre(9, 19, 29, 12, 26, 40));
  EXPECT_THAT(r.dx, ElementsAre(1, 2, 3 + 10, 4 + 12));
  EXPECT_THAT(r.grads, ElementsAre(1, -1, 2, 0, 4, 0, 1, 1, 2));
}

TEST(Linear, MatchesTheReference) {
  const Values x = draws(5 * 37, 1);
  const Values params = draws(11 * 37 + 11, 2);
  const LayerRun<double> r = run(Linear<double>(37, 11), 5, x, params, Values(5 * 11, 1));
  const Values expected = reference::linear(x, params, 37, 11);
  ASSERT_EQ(r.y.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(r.y[i], expected[i], 1e-12);
}

TEST(Relu, ByHandWithZeroAndNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const LayerRun<double> r = run(Relu<double>({4, 1, 1}), 1, {-1, 0, 2, nan}, {}, {5, 6, 7, 8});
  EXPECT_THAT(std::vector<double>(r.y.begin(), r.y.begin() + 3), ElementsAre(0, 0, 2));
  EXPECT_TRUE(std::isnan(r.y[3]));
  EXPECT_THAT(r.dx, ElementsAre(0, 0, 7, 8));
}

TEST(MaxPool2d, FirstOfEqualMaximaAndOddEdges) {
  const MaxPool2d<double> layer({1, 3, 5});
  EXPECT_EQ(layer.output(), (SampleShape{1, 1, 2}));
  const LayerRun<double> r = run(layer, 1,
                                 {1, 4, 2, 2, 9,  //
                                  4, 3, 2, 2, 9,  //
                                  8, 8, 8, 8, 8},
                                 {}, {10, 20});
  EXPECT_THAT(r.y, ElementsAre(4, 2));
  EXPECT_THAT(r.dx, ElementsAre(0, 10, 20, 0, 0,  //
                                0, 0, 0, 0, 0,    //
                                0, 0, 0, 0, 0));
}

TEST(MaxPool2d, NanWins) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const LayerRun<double> r = run(MaxPool2d<double>({1, 2, 2}), 1, {1, 2, nan, 3}, {}, {5});
  EXPECT_TRUE(std::isnan(r.y[0]));
  EXPECT_THAT(r.dx, ElementsAre(0, 0, 5, 0));
}

TEST(Conv2d, M7_ByHand) {
  // One 2x2 image, one 3x3 kernel of 1..9, bias 100: the middle of the kernel (5) meets the pixel.
  const Conv2d<double> layer({1, 2, 2}, 1, 3);
  const LayerRun<double> r =
      run(layer, 1, {1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 100}, {1, 0, 0, 0});
  EXPECT_THAT(r.y, ElementsAre(100 + 5 + 12 + 24 + 36,  // 1*5 + 2*6 + 3*8 + 4*9
                               100 + 4 + 10 + 21 + 32,  // 1*4 + 2*5 + 3*7 + 4*8
                               100 + 2 + 6 + 15 + 24,   // 1*2 + 2*3 + 3*5 + 4*6
                               100 + 1 + 4 + 12 + 20));
  EXPECT_THAT(r.dx, ElementsAre(5, 6, 8, 9));
  EXPECT_THAT(r.grads, ElementsAre(0, 0, 0, 0, 1, 2, 0, 3, 4, 1));
}

TEST(Conv2d, M7_MatchesTheReferenceOnOddShapes) {
  for (const SampleShape in : {SampleShape{3, 5, 7}, SampleShape{2, 1, 9}, SampleShape{1, 8, 1}}) {
    for (const std::int64_t kernel : {1, 3, 5}) {
      const Values x = draws(3 * in.elems(), 3);
      const std::int64_t weights = 4 * in.channels * kernel * kernel;
      const Values params = draws(weights + 4, 4);
      const Conv2d<double> layer(in, 4, kernel);
      const LayerRun<double> r =
          run(layer, 3, x, params, Values(static_cast<std::size_t>(3 * layer.output().elems()), 1));
      const Values expected = reference::conv2d(x, params, in, 4, {kernel, 1, kernel / 2});
      ASSERT_EQ(r.y.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(r.y[i], expected[i], 1e-12);
    }
  }
}

// M7: forward and both ways back against direct loops, in double and in float.
TEST(Conv2d, M7_MatchesTheReferenceWithStrideGroupsAndPadding) {
  const SampleShape in{4, 7, 6};
  for (const ConvOptions o : {ConvOptions{3, 2, 1}, ConvOptions{3, 1, 1, 2}, ConvOptions{1, 2, 0},
                              ConvOptions{4, 3, 2, 4, false}, ConvOptions{5, 1, 0, 1, false}}) {
    const Conv2d<double> layer(in, 8, o);
    const Conv2d<float> single(in, 8, o);
    const std::vector<float> x = draws<float>(2 * in.elems(), 3);
    const std::vector<float> params = draws<float>(parameter_elems(layer.parameters()), 4);
    const std::vector<float> dy = draws<float>(2 * layer.output().elems(), 5);
    const Values wide_x(x.begin(), x.end());
    const Values wide_params(params.begin(), params.end());
    const Values wide_dy(dy.begin(), dy.end());
    const LayerRun<double> r = run(layer, 2, wide_x, wide_params, wide_dy);
    LayerRun<float> f(single, 2, x, params);
    f.forward();
    f.backward(dy);
    const Values y = reference::conv2d(wide_x, wide_params, in, 8, o);
    const auto slopes = reference::conv2d_gradients(wide_x, wide_params, wide_dy, in, 8, o);
    ASSERT_EQ(r.y.size(), y.size());
    const auto expect_equal = [](const Values& wide, const std::vector<float>& narrow,
                                 const Values& expected) {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(wide[i], expected[i], 1e-12 * std::max(1.0, std::abs(expected[i])));
        EXPECT_NEAR(narrow[i], expected[i], 1e-5 * std::max(1.0, std::abs(expected[i])));
      }
    };
    expect_equal(r.y, f.y, y);
    expect_equal(r.dx, f.dx, slopes.dx);
    expect_equal(r.grads, f.grads, slopes.grads);
  }
}

TEST(MaxPool2d, OverlappingWindowsAddUp) {
  const MaxPool2d<double> layer({1, 3, 5}, 3, 2);
  EXPECT_EQ(layer.output(), (SampleShape{1, 1, 2}));
  const LayerRun<double> r = run(layer, 1,
                                 {1, 0, 9, 0, 2,  //
                                  0, 3, 4, 5, 0,  //
                                  0, 0, 0, 0, 0},
                                 {}, {10, 20});
  EXPECT_THAT(r.y, ElementsAre(9, 9));
  EXPECT_EQ(r.dx[2], 30);
  EXPECT_EQ(std::accumulate(r.dx.begin(), r.dx.end(), 0.0), 30);
}

TEST(AvgPool2d, ByHand) {
  const AvgPool2d<double> layer({1, 2, 5}, 2);
  const LayerRun<double> r = run(layer, 1, {1, 2, 3, 4, 9, 5, 6, 7, 8, 9}, {}, {4, 8});
  EXPECT_THAT(r.y, ElementsAre(3.5, 5.5));
  EXPECT_THAT(r.dx, ElementsAre(1, 1, 2, 2, 0, 1, 1, 2, 2, 0));
  const auto global = AvgPool2d<double>::global({2, 2, 2});
  EXPECT_EQ(global.output(), (SampleShape{2, 1, 1}));
  EXPECT_THAT(run(global, 1, {1, 2, 3, 4, 5, 6, 7, 8}, {}, {0, 0}).y, ElementsAre(2.5, 6.5));
}

// M11: every head and position by itself, in double and in float.
TEST(CausalAttention, M11_MatchesTheScalarReference) {
  for (const std::int64_t positions : {1, 7, 33}) {
    const std::vector<float> x = draws<float>(2 * positions * 3 * 12, 6);
    const Values wide(x.begin(), x.end());
    const Values expected = reference::causal_attention(wide, positions, 12, 3);
    const CausalAttention<double> layer(positions, 12, 3);
    LayerRun<double> r(layer, 2, wide, {});
    const CausalAttention<float> single(positions, 12, 3);
    LayerRun<float> f(single, 2, x, {});
    r.forward();
    f.forward();
    ASSERT_EQ(r.y.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(r.y[i], expected[i], 1e-12);
      EXPECT_NEAR(f.y[i], expected[i], 1e-5);
    }
  }
}

TEST(CausalAttention, M11_LaterPositionsChangeNothing) {
  const std::int64_t positions = 6;
  const CausalAttention<double> layer(positions, 4, 2);
  LayerRun<double> r(layer, 1, draws(positions * 12, 7), {});
  const Values before = r.forward();
  for (std::size_t i = 4 * 12; i < r.x.size(); ++i) r.x[i] += 100;  // positions 4 and 5
  const Values after = r.forward();
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 4 * 4, after.begin()));
  EXPECT_NE(before, after);
}

TEST(CausalAttention, SurvivesLargeScores) {
  const CausalAttention<double> layer(2, 1, 1);
  // Scores of the second position: 1e3 * 0 and 1e3 * 1e3; all weight goes to the second value.
  LayerRun<double> r(layer, 1, {0, 0, 5, 1e3, 1e3, 7}, {});
  EXPECT_THAT(r.forward(), ElementsAre(5, 7));
  r.backward({1, 1});
  for (const double d : r.dx) EXPECT_TRUE(std::isfinite(d));
}

TEST(LayerNorm, ByHand) {
  const LayerNorm<double> layer({1, 1, 4});
  LayerRun<double> r(layer, 1, {1, 3, 5, 7}, {1, 1, 2, 1, 0, 0, 0, 10});
  const double scale = 1 / std::sqrt(5 + LayerNorm<double>::kEpsilon);  // mean 4, variance 5
  const Values expected{-3 * scale, -scale, 2 * scale, 3 * scale + 10};
  r.forward();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(r.y[i], expected[i], 1e-15);
}

TEST(Gelu, ByHand) {
  // Phi(1) = 0.841344746068542948 (tables of the normal distribution).
  const Gelu<double> layer({3, 1, 1});
  LayerRun<double> r(layer, 1, {0, 1, -1}, {});
  r.forward();
  EXPECT_NEAR(r.y[0], 0, 1e-16);
  EXPECT_NEAR(r.y[1], 0.841344746068542948, 1e-15);
  EXPECT_NEAR(r.y[2], -0.158655253931457051, 1e-15);
}

TEST(Embedding, AddsTokenAndPosition) {
  const Embedding<double> layer({3, 2, 2});
  const LayerRun<double> r =
      run(layer, 1, {2, 2}, {1, 2, 3, 4, 5, 6, 10, 20, 30, 40}, {1, 2, 3, 4});
  EXPECT_THAT(r.y, ElementsAre(15, 26, 35, 46));
  EXPECT_THAT(r.grads, ElementsAre(0, 0, 0, 0, 4, 6, 1, 2, 3, 4));
}

TEST(SquaredError, ByHand) {
  Values delta(4, 777);
  const std::vector<std::uint32_t> labels{0, 1};
  // (0.5^2 + 2^2 + 1^2 + 0^2) / 2 / 2 rows
  EXPECT_EQ(squared_error<double>(Values{0.5, 2, -1, 1}, labels, delta), 5.25 / 4);
  EXPECT_THAT(delta, ElementsAre(-0.25, 1, -0.5, 0));
}

TEST(CrossEntropy, ByHand) {
  const double third = std::log(3.0);
  const Values logits{0, 0, third, third};  // softmax rows: (1/2, 1/2), (1/2, 1/2)
  Values delta(4, 777);
  const std::vector<std::uint32_t> labels{0, 1};
  EXPECT_NEAR(cross_entropy<double>(logits, labels, delta), std::log(2.0), 1e-15);
  EXPECT_THAT(delta, ElementsAre(-0.25, 0.25, 0.25, -0.25));
}

TEST(CrossEntropy, MatchesTheReferenceAndSurvivesLargeLogits) {
  const Values logits = draws(70, 5);
  const std::vector<std::uint32_t> labels{0, 1, 2, 3, 4, 5, 9};
  const double expected = reference::cross_entropy(logits, labels);
  EXPECT_NEAR(cross_entropy<double>(logits, labels, {}), expected, 1e-14);
  Values shifted = logits;
  for (double& logit : shifted) logit += 1e4;
  EXPECT_NEAR(cross_entropy<double>(shifted, labels, {}), expected, 1e-10);
}

TEST(CrossEntropy, CountsFirstLargestAndTreatsNanAsClassZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits{1, 2, 2, /**/ 3, 1, 3, /**/ nan, nan, nan, /**/ 0, 0, 1};
  EXPECT_EQ(count_correct<float>(logits, std::vector<std::uint32_t>{1, 0, 0, 2}), 4);
  EXPECT_EQ(count_correct<float>(logits, std::vector<std::uint32_t>{2, 2, 1, 1}), 0);
}

TEST(FixedSum, OrderIsByLane) {
  // In lane order 2^24 + 1 + 1 rounds twice; element 16 joins lane 0, so 1 + 1 = 2 is added whole.
  std::vector<float> values(17, 0.0f);
  values[0] = 1;
  values[16] = 1;
  values[1] = 0x1p24f;
  EXPECT_EQ(fixed_sum(values.data(), 17), 0x1p24f + 2.0f);
  EXPECT_EQ(fixed_sum(values.data(), 0), 0.0f);
}

}  // namespace
}  // namespace gradwire::layers_test
