#include "compress/error_feedback/ef21.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "compress/error_feedback/legality.h"
#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::ef21_test {
namespace {

using testing::CoderRanks;
using Vector = std::vector<double>;

// A method under ef21 on `size` ranks.
template <typename T>
class Fed {
 public:
  Fed(std::string_view spec, const Shape& shape, int size, Ef21Options options = {})
      : compressor_(std::move(Registry::builtin().make(spec)).value()),
        ranks_(std::move(
                   CoderRanks<T>::open(
                       *compressor_, shape, size, 1, 77,
                       [options](auto coder, const Shape& s, const auto& where) {
                         return std::move(make_ef21(std::move(coder), s, where, options)).value();
                       }))
                   .value()) {}
  testing::StepOutcome<T> step(const std::vector<std::vector<T>>& grads, std::uint64_t t) {
    return ranks_.step(grads, t);
  }
  std::vector<NamedTensor> state(int rank) { return ranks_.coder(rank).state(); }

 private:
  std::unique_ptr<Compressor> compressor_;
  CoderRanks<T> ranks_;
};

double distance(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

TEST(Ef21, SendsWhatTheRunningMeanLacksByHand) {
  Fed<double> fed("topk:k=1", Shape::vector(3), 2);
  const Vector a{4, -3, 2};
  const Vector b{0, 6, 2};
  // h_a: (4,0,0), (4,-3,0), (4,-3,2); h_b: (0,6,0), (0,6,2), the same.
  const std::vector<Vector> mean{{2, 3, 0}, {2, 1.5, 1}, {2, 1.5, 2}, {2, 1.5, 2}};
  const std::vector<Vector> own_b{{0, 6, 0}, {0, 6, 2}, {0, 6, 2}, {0, 6, 2}};
  for (std::size_t t = 0; t < mean.size(); ++t) {
    const auto out = fed.step({a, b}, t);
    ASSERT_TRUE(out.status.ok()) << out.status.message();
    EXPECT_EQ(out.mean[0], mean[t]) << t;
    EXPECT_EQ(out.mean[1], mean[t]) << t;
    EXPECT_EQ(out.own[1], own_b[t]) << t;
  }
}

TEST(Ef21, SgdmFollowsTheMovingAverageByHand) {
  Fed<double> fed("none", Shape::vector(1), 1, {.eta = 0.25});
  // v: 2, then 0.75 * 2 + 0.25 * 4 = 2.5, then 0.75 * 2.5 - 0.25 * 2 = 1.375.
  EXPECT_EQ(fed.step({{8}}, 0).mean[0][0], 2);
  EXPECT_EQ(fed.step({{4}}, 1).mean[0][0], 2.5);
  EXPECT_EQ(fed.step({{-2}}, 2).mean[0][0], 1.375);
}

// |g - h|^2 <= (1 - delta)^t |g|^2 under a constant gradient.
TEST(Ef21, ConstantGradientIsReachedAtTheClaimedRate) {
  constexpr std::int64_t kElems = 200;
  Vector g(kElems);
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = std::sin(1.0 + static_cast<double>(i));
  for (const char* spec : {"topk:k=10", "signsgd:bucket=tensor", "minmax:bits=2"}) {
    const Shape shape = Shape::vector(kElems);
    const auto compressor = std::move(Registry::builtin().make(spec)).value();
    const double delta = compressor->bound(shape).value;
    Fed<double> fed(spec, shape, 1);
    const double start = distance(g, Vector(kElems));
    double at_40 = 0;
    for (int t = 1; t <= 40; ++t) {
      at_40 = distance(g, fed.step({g}, static_cast<std::uint64_t>(t)).mean[0]);
      EXPECT_LE(at_40, std::pow(1 - delta, t / 2.0) * start * (1 + 1e-12)) << spec << " " << t;
    }
    if (spec[0] == 't') {  // 20 steps send every element
      EXPECT_LT(at_40, 1e-12 * start);
    }
  }
}

template <typename T>
class Ef21Both : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Ef21Both, Floats);

template <typename T>
std::vector<T> wave(std::size_t count, std::uint64_t t, int rank) {
  std::vector<T> g(count);
  for (std::size_t i = 0; i < count; ++i) {
    g[i] = static_cast<T>(
        std::sin(0.7 * static_cast<double>(i) + 0.3 * static_cast<double>(t) + 2.1 * rank));
  }
  return g;
}

TYPED_TEST(Ef21Both, ResultIsTheAverageOfHAndEqualOnAllRanks) {
  const Shape shape = Shape::matrix(6, 11);
  for (const char* spec : {"topk:k=4", "signsgd:bucket=tensor", "powersgd:rank=1", "minmax:bits=4",
                           "qsgd:bits=4", "cast:bf16"}) {
    Fed<TypeParam> fed(spec, shape, 3, {.eta = 0.5});
    for (std::uint64_t t = 0; t < 30; ++t) {
      const auto out = fed.step(
          {wave<TypeParam>(66, t, 0), wave<TypeParam>(66, t, 1), wave<TypeParam>(66, t, 2)}, t);
      ASSERT_TRUE(out.status.ok()) << out.status.message();
      EXPECT_EQ(out.mean[1], out.mean[0]) << spec;
      EXPECT_EQ(out.mean[2], out.mean[0]) << spec;
      // Sums in bfloat16 lose their last bits before anybody sees them.
      const double unit = std::string_view(spec) == "cast:bf16" ? 0x1p-7
                          : sizeof(TypeParam) == 4              ? 0x1p-20
                                                                : 0x1p-49;
      for (std::size_t i = 0; i < 66; ++i) {
        const double own =
            (static_cast<double>(out.own[0][i]) + static_cast<double>(out.own[1][i]) +
             static_cast<double>(out.own[2][i])) /
            3;
        ASSERT_NEAR(static_cast<double>(out.mean[0][i]), own, 30 * unit) << spec;
      }
    }
  }
}

TYPED_TEST(Ef21Both, ResumedRunSendsTheSameBytes) {
  const Shape shape = Shape::matrix(6, 11);
  Fed<TypeParam> first("powersgd:rank=1", shape, 2, {.eta = 0.1});
  Fed<TypeParam> second("powersgd:rank=1", shape, 2, {.eta = 0.1});
  const auto grads = [](std::uint64_t t) {
    return std::vector{wave<TypeParam>(66, t, 0), wave<TypeParam>(66, t, 1)};
  };
  for (std::uint64_t t = 0; t < 4; ++t) ASSERT_TRUE(first.step(grads(t), t).status.ok());
  for (int r = 0; r < 2; ++r) {
    const auto from = first.state(r);
    const auto to = second.state(r);
    ASSERT_EQ(from.size(), 4u);  // h, mean, v, q
    for (std::size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(from[i].name, to[i].name);
      std::memcpy(to[i].tensor.data(), from[i].tensor.data(), from[i].tensor.bytes().size());
    }
  }
  for (std::uint64_t t = 4; t < 7; ++t) {
    const auto a = first.step(grads(t), t);
    const auto b = second.step(grads(t), t);
    EXPECT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(a.mean, b.mean);
  }
}

TYPED_TEST(Ef21Both, NonFiniteGradientIsNamedAndLeavesTheState) {
  Fed<TypeParam> fed("topk:k=2", Shape::vector(3), 1, {.eta = 0.5});
  ASSERT_TRUE(fed.step({{1, 2, 3}}, 0).status.ok());
  std::vector<std::vector<std::byte>> before;
  for (const NamedTensor& entry : fed.state(0)) {
    before.emplace_back(entry.tensor.bytes().begin(), entry.tensor.bytes().end());
  }
  const auto out = fed.step({{1, std::numeric_limits<TypeParam>::quiet_NaN(), 3}}, 1);
  EXPECT_THAT(out.status, fails(Code::kInvalidArgument, "element 1", "(3)"));
  std::size_t next = 0;
  for (const NamedTensor& entry : fed.state(0)) {
    EXPECT_EQ(std::vector<std::byte>(entry.tensor.bytes().begin(), entry.tensor.bytes().end()),
              before[next++]);
  }
}

TEST(Ef21, OnlyContractionsStandUnderIt) {
  const auto judged = [](const char* spec) {
    const auto compressor = std::move(Registry::builtin().make(spec)).value();
    return check_pair(*compressor, Shape::matrix(64, 64), {.error_feedback = true});
  };
  EXPECT_EQ(judged("topk:ratio=0.1").value().scale, 1);
  EXPECT_LT(judged("qsgd:levels=1,norm=l2").value().scale, 0.1);  // divided into a contraction
  for (const char* spec : {"signsgd:scale=none", "signsgd:vote=majority"}) {
    const auto refused = judged(spec);
    ASSERT_FALSE(refused.has_value()) << spec;
    EXPECT_THAT(refused.error(), fails(Code::kInvalidArgument, spec, "ef=ef14"));
  }
}

TEST(Ef21, RefusesWhatItCannotServe) {
  const Compressor::Placement where;
  EXPECT_EQ(make_ef21(nullptr, Shape::vector(1), where).error().code(), Code::kInvalidArgument);
  const auto none = std::move(Registry::builtin().make("none")).value();
  for (const double bad : {0.0, -1.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    auto one = std::move(none->open(Shape::vector(1), where)).value();
    EXPECT_FALSE(make_ef21(std::move(one), Shape::vector(1), where, {.scale = bad}).has_value());
    auto two = std::move(none->open(Shape::vector(1), where)).value();
    EXPECT_FALSE(make_ef21(std::move(two), Shape::vector(1), where, {.eta = bad}).has_value());
  }
  Fed<float> empty("none", Shape::vector(0), 2, {.eta = 0.1});
  EXPECT_TRUE(empty.step({{}, {}}, 0).status.ok());
}

}  // namespace
}  // namespace gradwire::ef21_test
