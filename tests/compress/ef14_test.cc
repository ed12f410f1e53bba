#include "compress/error_feedback/ef14.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::ef14_test {
namespace {

using testing::CoderRanks;
using testing::make;

template <int kPercent>
std::unique_ptr<Coder> feedback(std::unique_ptr<Coder> inner, const Shape& shape,
                                const Compressor::Placement& where) {
  return std::move(make_ef14(std::move(inner), shape, where, kPercent / 100.0)).value();
}

template <typename T>
CoderRanks<T> open(const Compressor& compressor, const Shape& shape, int size) {
  return std::move(CoderRanks<T>::open(compressor, shape, size, 1, 77, &feedback<100>)).value();
}

// bfloat16 near 1 has steps of 2^-7, so 1 + 2^-9 loses its last bit until three are together.
TEST(Ef14, CarriesWhatRoundingCutOffByHand) {
  const auto bf16 = make("cast:bf16");
  auto ranks = open<float>(*bf16, Shape::vector(1), 1);
  const std::vector<float> mean{1, 1, 1 + 0x1p-7f, 1};
  const std::vector<float> error{0x1p-9f, 0x1p-8f, -0x1p-9f, 0};
  for (std::size_t t = 0; t < mean.size(); ++t) {
    const auto out = ranks.step({{1 + 0x1p-9f}}, t);
    ASSERT_TRUE(out.status.ok()) << out.status.message();
    EXPECT_EQ(out.mean[0][0], mean[t]) << t;
    EXPECT_EQ(out.own[0][0], mean[t]) << t;
    EXPECT_EQ(elements<float>(ranks.coder(0).state()[0].tensor)[0], error[t]) << t;
  }
}

TEST(Ef14, ScaleMultipliesOwnAndMeanAndTheResidualTakesTheRest) {
  const auto none = make("none");
  auto ranks =
      std::move(CoderRanks<double>::open(*none, Shape::vector(2), 2, 1, 77, &feedback<25>)).value();
  const auto first = ranks.step({{4, -8}, {8, 0}}, 0);  // p = g
  EXPECT_EQ(first.own[0], (std::vector<double>{1, -2}));
  EXPECT_EQ(first.own[1], (std::vector<double>{2, 0}));
  EXPECT_EQ(first.mean[0], (std::vector<double>{1.5, -1}));
  EXPECT_EQ(first.mean[1], first.mean[0]);
  const auto second = ranks.step({{4, -8}, {8, 0}}, 1);  // p = (7, -14), (14, 0)
  EXPECT_EQ(second.own[0], (std::vector<double>{1.75, -3.5}));
  EXPECT_EQ(second.mean[0], (std::vector<double>{2.625, -1.75}));
  EXPECT_EQ(elements<double>(ranks.coder(0).state()[0].tensor)[1], -10.5);
}

template <typename T>
class Ef14Both : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Ef14Both, Floats);

TYPED_TEST(Ef14Both, NonFiniteGradientIsNamedAndLeavesTheResidual) {
  const auto bf16 = make("cast:bf16");
  auto ranks = open<TypeParam>(*bf16, Shape::matrix(2, 2), 1);
  const std::vector<TypeParam> g{1.001f, 2.002f, 3.003f, 4.004f};
  ASSERT_TRUE(ranks.step({g}, 0).status.ok());
  const auto error = elements<TypeParam>(ranks.coder(0).state()[0].tensor);
  const std::vector<TypeParam> before(error.begin(), error.end());
  for (const TypeParam bad :
       {std::numeric_limits<TypeParam>::quiet_NaN(), -std::numeric_limits<TypeParam>::infinity()}) {
    const auto out = ranks.step({{1, 2, bad, 4}}, 1);
    EXPECT_THAT(out.status, fails(Code::kInvalidArgument, "element 2", "(2, 2)"));
    EXPECT_EQ(std::vector<TypeParam>(error.begin(), error.end()), before);
  }
  const auto view = ConstTensorView(reinterpret_cast<const std::byte*>(g.data()),
                                    Shape::matrix(2, 2), DTypeOf<TypeParam>::kValue);
  ASSERT_TRUE(ranks.coder(0).begin(view, 2, {}).ok());  // begun and then skipped
  EXPECT_EQ(std::vector<TypeParam>(error.begin(), error.end()), before);
  EXPECT_TRUE(ranks.step({g}, 3).status.ok());
}

TEST(Ef14, ARangeThatOverflowsIsAnErrorNotAnInfiniteResidual) {
  const auto fp16 = make("cast:fp16");
  auto ranks = open<float>(*fp16, Shape::vector(2), 1);
  const auto out = ranks.step({{1.0f, 1e6f}}, 0);  // 1e6 fits no fp16
  EXPECT_THAT(out.status, fails(Code::kInvalidArgument, "element 1", "(2)"));
  EXPECT_EQ(elements<float>(ranks.coder(0).state()[0].tensor)[1], 0.0f);
}

TEST(Ef14, RefusesWhatItCannotServe) {
  const Compressor::Placement where;
  EXPECT_EQ(make_ef14(nullptr, Shape::vector(1), where).error().code(), Code::kInvalidArgument);
  for (const double scale : {0.0, -1.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    auto inner = std::move(make("none")->open(Shape::vector(1), where)).value();
    EXPECT_EQ(make_ef14(std::move(inner), Shape::vector(1), where, scale).error().code(),
              Code::kInvalidArgument);
  }
  auto inner = std::move(make("none")->open(Shape::vector(1), where)).value();
  auto coder = std::move(make_ef14(std::move(inner), Shape::vector(1), where)).value();
  std::vector<float> mean(1);
  EXPECT_EQ(coder->finish(view_of<float>(mean), {}, {}).code(), Code::kInvalidArgument);
  std::vector<float> longer(2);
  EXPECT_EQ(coder->begin(view_of<float>(longer), 0, {}).code(), Code::kInvalidArgument);
}

TEST(Ef14, EmptyTensorsPass) {
  const auto none = make("none");
  auto ranks = open<float>(*none, Shape::vector(0), 2);
  EXPECT_TRUE(ranks.step({{}, {}}, 0).status.ok());
}

}  // namespace
}  // namespace gradwire::ef14_test
