// Hand-computed values, and agreement with the slow reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "tests/reference/layers_reference.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/cross_entropy.h"
#include "trainer/layers/fixed_sum.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool2d.h"
#include "trainer/layers/relu.h"

namespace gradwire {
namespace {

using Values = std::vector<double>;
using testing::ElementsAre;

Values draws(std::size_t count, std::uint64_t seed) {
  const RandomStream stream(seed, RandomUse::kTest, 0, kSharedRank, 0, 0);
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = stream.normal(i);
  return values;
}

struct Outcome {
  Values y;
  Values dx;
  Values grads;
};

// One forward and one backward of `layer`; the outputs start as garbage that must not survive.
Outcome run(const Layer<double>& layer, std::int64_t rows, const Values& x, const Values& params,
            const Values& dy) {
  Outcome result;
  result.y.assign(static_cast<std::size_t>(rows * layer.output().elems()), 777);
  result.dx.assign(x.size(), 777);
  result.grads.assign(params.size(), 777);
  Values scratch(static_cast<std::size_t>(layer.scratch_elems()), 777);
  const LayerPass<double> pass{rows, params, x, result.y, scratch};
  layer.forward(pass);
  layer.backward_params(pass, dy, result.grads);
  layer.backward_input(pass, dy, result.dx);
  return result;
}

TEST(Linear, ByHand) {
  const Linear<double> layer(2, 3);
  // W = [1 2; 3 4; 5 6], b = [10 20 30], x = [1 -1; 2 0]
  const Outcome r =
      run(layer, 2, {1, -1, 2, 0}, {1, 2, 3, 4, 5, 6, 10, 20, 30}, {1, 0, 0, 0, 1, 2});
  EXPECT_THAT(r.y, ElementsAre(9, 19, 29, 12, 26, 40));
  EXPECT_THAT(r.dx, ElementsAre(1, 2, 3 + 10, 4 + 12));
  EXPECT_THAT(r.grads, ElementsAre(1, -1, 2, 0, 4, 0, 1, 1, 2));
}

TEST(Linear, MatchesTheReference) {
  const Values x = draws(5 * 37, 1);
  const Values params = draws(11 * 37 + 11, 2);
  const Outcome r = run(Linear<double>(37, 11), 5, x, params, Values(5 * 11, 1));
  const Values expected = reference::linear(x, params, 37, 11);
  ASSERT_EQ(r.y.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(r.y[i], expected[i], 1e-12);
}

TEST(Relu, ByHandWithZeroAndNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Outcome r = run(Relu<double>({4, 1, 1}), 1, {-1, 0, 2, nan}, {}, {5, 6, 7, 8});
  EXPECT_THAT(std::vector<double>(r.y.begin(), r.y.begin() + 3), ElementsAre(0, 0, 2));
  EXPECT_TRUE(std::isnan(r.y[3]));
  EXPECT_THAT(r.dx, ElementsAre(0, 0, 7, 8));
}

TEST(MaxPool2d, FirstOfEqualMaximaAndOddEdges) {
  const MaxPool2d<double> layer({1, 3, 5});
  EXPECT_EQ(layer.output(), (SampleShape{1, 1, 2}));
  const Outcome r = run(layer, 1,
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
  const Outcome r = run(MaxPool2d<double>({1, 2, 2}), 1, {1, 2, nan, 3}, {}, {5});
  EXPECT_TRUE(std::isnan(r.y[0]));
  EXPECT_THAT(r.dx, ElementsAre(0, 0, 5, 0));
}

TEST(Conv2d, ByHand) {
  // One 2x2 image, one 3x3 kernel of 1..9, bias 100: the middle of the kernel (5) meets the pixel.
  const Conv2d<double> layer({1, 2, 2}, 1, 3);
  const Outcome r = run(layer, 1, {1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 100}, {1, 0, 0, 0});
  EXPECT_THAT(r.y, ElementsAre(100 + 5 + 12 + 24 + 36,  // 1*5 + 2*6 + 3*8 + 4*9
                               100 + 4 + 10 + 21 + 32,  // 1*4 + 2*5 + 3*7 + 4*8
                               100 + 2 + 6 + 15 + 24,   // 1*2 + 2*3 + 3*5 + 4*6
                               100 + 1 + 4 + 12 + 20));
  EXPECT_THAT(r.dx, ElementsAre(5, 6, 8, 9));
  EXPECT_THAT(r.grads, ElementsAre(0, 0, 0, 0, 1, 2, 0, 3, 4, 1));
}

TEST(Conv2d, MatchesTheReferenceOnOddShapes) {
  for (const SampleShape in : {SampleShape{3, 5, 7}, SampleShape{2, 1, 9}, SampleShape{1, 8, 1}}) {
    for (const std::int64_t kernel : {1, 3, 5}) {
      const Values x = draws(static_cast<std::size_t>(3 * in.elems()), 3);
      const std::int64_t weights = 4 * in.channels * kernel * kernel;
      const Values params = draws(static_cast<std::size_t>(weights + 4), 4);
      const Conv2d<double> layer(in, 4, kernel);
      const Outcome r =
          run(layer, 3, x, params, Values(static_cast<std::size_t>(3 * layer.output().elems()), 1));
      const Values expected = reference::conv2d(x, params, in, 4, kernel);
      ASSERT_EQ(r.y.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(r.y[i], expected[i], 1e-12);
    }
  }
}

TEST(CrossEntropy, ByHand) {
  const double third = std::log(3.0);
  const Values logits{0, 0, third, third};  // softmax rows: (1/2, 1/2), (1/2, 1/2)
  Values delta(4, 777);
  const std::vector<std::uint8_t> labels{0, 1};
  EXPECT_NEAR(cross_entropy<double>(logits, labels, delta), std::log(2.0), 1e-15);
  EXPECT_THAT(delta, ElementsAre(-0.25, 0.25, 0.25, -0.25));
}

TEST(CrossEntropy, MatchesTheReferenceAndSurvivesLargeLogits) {
  const Values logits = draws(70, 5);
  const std::vector<std::uint8_t> labels{0, 1, 2, 3, 4, 5, 9};
  const double expected = reference::cross_entropy(logits, labels);
  EXPECT_NEAR(cross_entropy<double>(logits, labels, {}), expected, 1e-14);
  Values shifted = logits;
  for (double& logit : shifted) logit += 1e4;
  EXPECT_NEAR(cross_entropy<double>(shifted, labels, {}), expected, 1e-10);
}

TEST(CrossEntropy, CountsFirstLargestAndTreatsNanAsClassZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits{1, 2, 2, /**/ 3, 1, 3, /**/ nan, nan, nan, /**/ 0, 0, 1};
  EXPECT_EQ(count_correct<float>(logits, std::vector<std::uint8_t>{1, 0, 0, 2}), 4);
  EXPECT_EQ(count_correct<float>(logits, std::vector<std::uint8_t>{2, 2, 1, 1}), 0);
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
}  // namespace gradwire
