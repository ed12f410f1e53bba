#include "compress/powersgd/powersgd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "gradwire/registry.h"
#include "tests/reference/powersgd_reference.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::powersgd_test {
namespace {

using testing::CoderRanks;
using testing::make;

template <typename T>
CoderRanks<T> open(const Compressor& compressor, const Shape& shape, int size,
                   std::uint64_t tensor = 77) {
  return std::move(CoderRanks<T>::open(compressor, shape, size, 1, tensor)).value();
}

template <typename T>
std::span<T> q_of(CoderRanks<T>& ranks, int rank) {
  return elements<T>(ranks.coder(rank).state().at(0).tensor);
}

template <typename T>
std::vector<T> values(ConstByteSpan bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

template <typename T>
std::vector<T> normal(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> draw;
  std::vector<T> out(count);
  for (T& x : out) x = static_cast<T>(draw(generator));
  return out;
}

// (a, c) of rank 1, entries about `size`.
template <typename T>
std::vector<T> rank_one(std::size_t a, std::size_t c, double size) {
  std::vector<T> out(a * c);
  for (std::size_t i = 0; i < a; ++i) {
    for (std::size_t j = 0; j < c; ++j) {
      out[i * c + j] = static_cast<T>(size * std::cos(1.0 + double(i)) * std::sin(2.0 + double(j)));
    }
  }
  return out;
}

template <typename T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double(a[i]) - double(b[i]), 2);
  return std::sqrt(sum);
}
template <typename T>
double length(const std::vector<T>& a) {
  return distance(a, std::vector<T>(a.size()));
}

// M_0 = [3 0; 4 0], M_1 = [0 0; 0 5], Q = (1, 0): P = (3, 4), P^ = (0.6, 0.8), Q_0 = (5, 0),
// Q_1 = (0, 4).
TEST(PowerSgd, OneStepByHand) {
  const auto method = make("powersgd:rank=1,min_rate=0");
  auto ranks = open<double>(*method, Shape::matrix(2, 2), 2);
  for (int r = 0; r < 2; ++r) {
    q_of(ranks, r)[0] = 1;
    q_of(ranks, r)[1] = 0;
  }
  const auto out = ranks.step({{3, 0, 4, 0}, {0, 0, 0, 5}}, 0);
  ASSERT_TRUE(out.status.ok()) << out.status.message();
  EXPECT_EQ(values<double>(out.bytes[0][0]), (std::vector<double>{3, 4}));
  EXPECT_EQ(values<double>(out.bytes[0][1]), (std::vector<double>{0, 0}));
  EXPECT_LT(distance(values<double>(out.bytes[1][0]), {5, 0}), 1e-14);
  EXPECT_LT(distance(values<double>(out.bytes[1][1]), {0, 4}), 1e-14);
  EXPECT_LT(distance(out.own[0], {3, 0, 4, 0}), 1e-14);
  EXPECT_LT(distance(out.own[1], {0, 2.4, 0, 3.2}), 1e-14);
  EXPECT_LT(distance(out.mean[0], {1.5, 1.2, 2, 1.6}), 1e-14);
  EXPECT_EQ(out.mean[1], out.mean[0]);
  EXPECT_NEAR(q_of(ranks, 1)[0], 2.5, 1e-14);  // warm: Q'
  EXPECT_NEAR(q_of(ranks, 1)[1], 2, 1e-14);
}

template <typename T>
class PowerSgdBoth : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(PowerSgdBoth, Floats);

TYPED_TEST(PowerSgdBoth, AgreesWithProjectionByElimination) {
  using T = TypeParam;
  const double tolerance = 200 * std::numeric_limits<T>::epsilon();
  struct Case {
    std::size_t a, c, r;
    int size;
  };
  for (const Case k : {Case{1, 9, 1, 1}, Case{5, 1, 1, 2}, Case{20, 30, 1, 3}, Case{33, 17, 4, 4},
                       Case{7, 2100, 3, 2}, Case{60, 8, 7, 2}}) {
    const auto method = make("powersgd:rank=" + std::to_string(k.r) + ",min_rate=0");
    const Shape shape =
        Shape::matrix(static_cast<std::int64_t>(k.a), static_cast<std::int64_t>(k.c));
    auto ranks = open<T>(*method, shape, k.size);
    reference::Matrix q(k.c, k.r);
    for (std::size_t i = 0; i < k.r * k.c; ++i) q.at(i % k.c, i / k.c) = q_of(ranks, 0)[i];
    std::vector<std::vector<T>> grads;
    reference::Matrix mean(k.a, k.c);
    for (int r = 0; r < k.size; ++r) {
      grads.push_back(normal<T>(k.a * k.c, static_cast<unsigned>(r)));
      for (std::size_t i = 0; i < k.a * k.c; ++i) mean.data[i] += grads.back()[i] / k.size;
    }
    const auto out = ranks.step(grads, 0);
    ASSERT_TRUE(out.status.ok()) << out.status.message();
    const auto p = reference::multiply(mean, q);
    const auto wanted = reference::project(p, mean);
    std::vector<double> got(out.mean[0].begin(), out.mean[0].end());
    EXPECT_LT(distance(got, {wanted.data.begin(), wanted.data.end()}), tolerance * length(got));
    for (int r = 0; r < k.size; ++r) {
      const auto at = static_cast<std::size_t>(r);
      reference::Matrix m(k.a, k.c);
      std::copy(grads[at].begin(), grads[at].end(), m.data.begin());
      const auto own = reference::project(p, m);
      got.assign(out.own[at].begin(), out.own[at].end());
      EXPECT_LT(distance(got, {own.data.begin(), own.data.end()}), tolerance * length(grads[at]));
      EXPECT_EQ(out.mean[at], out.mean[0]);  // bit for bit
      EXPECT_LE(distance(out.own[at], grads[at]), (1 + tolerance) * length(grads[at]));
    }
  }
}

// GRACE leaves out the division, so that its result is n times the mean; redraws Q at every step,
// on every rank alone; and divides zero layers by zero.
TYPED_TEST(PowerSgdBoth, MeanIsNotNTimesTooLarge) {
  using T = TypeParam;
  const auto method = make("powersgd:rank=2");
  const auto grad = rank_one<T>(12, 9, 1);
  for (const int size : {1, 2, 3, 8}) {
    auto ranks = open<T>(*method, Shape::matrix(12, 9), size);
    const auto out =
        ranks.step(std::vector<std::vector<T>>(static_cast<std::size_t>(size), grad), 0);
    EXPECT_LT(distance(out.mean[0], grad), 20 * std::numeric_limits<T>::epsilon() * length(grad));
  }
}

TYPED_TEST(PowerSgdBoth, StartIsSharedByRanksAndDiffersByTensorAndColdStep) {
  using T = TypeParam;
  const auto warm = make("powersgd:rank=2");
  auto ranks = open<T>(*warm, Shape::matrix(5, 6), 3);
  auto other = open<T>(*warm, Shape::matrix(5, 6), 1, 78);
  const std::vector<T> q(q_of(ranks, 0).begin(), q_of(ranks, 0).end());
  EXPECT_TRUE(std::equal(q.begin(), q.end(), q_of(ranks, 2).begin()));
  EXPECT_FALSE(std::equal(q.begin(), q.end(), q_of(other, 0).begin()));

  const auto cold = make("powersgd:rank=2,warm=false");
  auto drawn = open<T>(*cold, Shape::matrix(5, 6), 1);
  EXPECT_TRUE(drawn.coder(0).state().empty());
  const std::vector<std::vector<T>> grad{normal<T>(30, 3)};
  const auto first = drawn.step(grad, 0).bytes[0];
  EXPECT_NE(drawn.step(grad, 1).bytes[0], first);
  EXPECT_EQ(drawn.step(grad, 0).bytes[0], first);
  EXPECT_EQ(ranks.step({3, grad[0]}, 0).bytes[0][0], first[0]);  // warm starts as cold's step 0
}

TYPED_TEST(PowerSgdBoth, WarmStartGetsCloserColdDoesNot) {
  using T = TypeParam;
  const std::vector<std::vector<T>> grad{normal<T>(40 * 30, 11)};
  const auto error = [&](const char* spec) {
    const auto method = make(spec);
    auto ranks = open<T>(*method, Shape::matrix(40, 30), 1);
    double last = 0;
    for (std::uint64_t t = 0; t < 30; ++t) last = distance(ranks.step(grad, t).own[0], grad[0]);
    return last;
  };
  EXPECT_LT(error("powersgd:rank=2"), 0.99 * error("powersgd:rank=2,warm=false"));
}

TYPED_TEST(PowerSgdBoth, ZeroLayerGivesZerosAndComesBack) {
  using T = TypeParam;
  const auto method = make("powersgd:rank=2");
  auto ranks = open<T>(*method, Shape::matrix(6, 10), 2);
  const std::vector<T> zero(60);
  for (std::uint64_t t = 0; t < 3; ++t) {
    const auto out = ranks.step({zero, zero}, t);
    ASSERT_TRUE(out.status.ok()) << out.status.message();
    EXPECT_EQ(out.mean[0], zero);
    EXPECT_EQ(out.own[1], zero);
  }
  const auto grad = rank_one<T>(6, 10, 1);  // Q is 0 now; P would be, for ever
  ASSERT_TRUE(ranks.step({grad, grad}, 3).status.ok());
  const auto out = ranks.step({grad, grad}, 4);
  EXPECT_LT(distance(out.mean[0], grad), 20 * std::numeric_limits<T>::epsilon() * length(grad));
  EXPECT_EQ(out.mean[0], out.mean[1]);
}

// epfml's rank-1 path divides a batch of same-shape matrices by the norm of them all.
TYPED_TEST(PowerSgdBoth, SameShapeLayersOfDifferentSizeAreNormalisedEachByItself) {
  using T = TypeParam;
  const auto method = make("powersgd:rank=1");
  for (const double size : {1e-12, 1.0, 1e12}) {
    auto ranks = open<T>(*method, Shape::matrix(16, 8), 1);
    const auto grad = rank_one<T>(16, 8, size);
    EXPECT_LT(distance(ranks.step({grad}, 0).mean[0], grad),
              20 * std::numeric_limits<T>::epsilon() * length(grad));
  }
}

TYPED_TEST(PowerSgdBoth, FullRankIsTheExactMean) {
  using T = TypeParam;
  for (const Shape& shape : {Shape::matrix(4, 9), Shape::matrix(9, 4), Shape{{3, 2, 2, 1}, 3}}) {
    const auto method = make("powersgd:rank=64,min_rate=0");
    auto ranks = open<T>(*method, shape, 2);
    const auto count = static_cast<std::size_t>(shape.elems());
    const auto a = normal<T>(count, 1);
    const auto b = normal<T>(count, 2);
    std::vector<T> mean(count);
    for (std::size_t i = 0; i < count; ++i) mean[i] = (a[i] + b[i]) / 2;
    EXPECT_LT(distance(ranks.step({a, b}, 0).mean[0], mean),
              100 * std::numeric_limits<T>::epsilon() * length(mean));
  }
}

// Rank 1 under rank 3: two columns of P have nothing of their own. Pythagoras shows a projection.
TYPED_TEST(PowerSgdBoth, DependentColumnsStillProject) {
  using T = TypeParam;
  const auto method = make("powersgd:rank=3");
  auto ranks = open<T>(*method, Shape::matrix(10, 8), 2);
  const auto lead = rank_one<T>(10, 8, 1000);
  auto rest = normal<T>(80, 4);
  std::vector<T> minus(80);
  for (std::size_t i = 0; i < 80; ++i) {
    minus[i] = lead[i] - rest[i];
    rest[i] += lead[i];
  }
  const auto out = ranks.step({rest, minus}, 0);  // the mean has rank 1
  for (std::size_t r = 0; r < 2; ++r) {
    const auto& x = r == 0 ? rest : minus;
    const double whole = std::pow(length(x), 2);
    const double parts = std::pow(length(out.own[r]), 2) + std::pow(distance(x, out.own[r]), 2);
    EXPECT_NEAR(parts / whole, 1, 20 * std::numeric_limits<T>::epsilon());
  }
}

TYPED_TEST(PowerSgdBoth, NonFiniteGradientFailsOnEveryRankAndKeepsQ) {
  using T = TypeParam;
  const auto method = make("powersgd:rank=1,min_rate=0");
  auto ranks = open<T>(*method, Shape::matrix(2, 2), 2);
  const std::vector<T> q(q_of(ranks, 0).begin(), q_of(ranks, 0).end());
  const auto out = ranks.step({{1, 2, 3, std::numeric_limits<T>::quiet_NaN()}, {1, 2, 3, 4}}, 0);
  EXPECT_THAT(out.status, fails(Code::kCorruptPayload, "powersgd", "P"));
  EXPECT_TRUE(std::equal(q.begin(), q.end(), q_of(ranks, 0).begin()));
}

TYPED_TEST(PowerSgdBoth, VectorsTravelDense) {
  using T = TypeParam;
  const auto method = make("powersgd:rank=2");
  auto ranks = open<T>(*method, Shape::vector(3), 2);
  const auto out = ranks.step({{1, 2, 3}, {4, 0, -3}}, 0);
  EXPECT_EQ(out.mean[1], (std::vector<T>{2.5, 1, 0}));
  EXPECT_EQ(out.own[1], (std::vector<T>{4, 0, -3}));
  EXPECT_EQ(out.bytes[0][0].size(), 3 * sizeof(T));
  EXPECT_EQ(out.bytes[1][0].size(), 0u);
}

// Factors of more values than the matrix were sent: larger, later and less exact than itself.
TYPED_TEST(PowerSgdBoth, MatricesThatWouldNotShrinkTravelDense) {
  using T = TypeParam;
  const auto method = make("powersgd:rank=4");
  const Shape thin = Shape::matrix(5, 2);  // r = 2, two factors of 2 (5 + 2) values
  auto ranks = open<T>(*method, thin, 2);
  const auto a = normal<T>(10, 1);
  const auto b = normal<T>(10, 2);
  const auto out = ranks.step({a, b}, 0);
  ASSERT_TRUE(out.status.ok()) << out.status.message();
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(out.mean[1][i], (a[i] + b[i]) / 2);
  EXPECT_EQ(out.own[1], b);
  EXPECT_EQ(out.bytes[0][0].size(), 10 * sizeof(T));
  EXPECT_EQ(out.bytes[1][0].size(), 0u);
  EXPECT_TRUE(ranks.coder(0).state().empty());
  EXPECT_EQ(method->bound(thin).value, 1);
}

TEST(PowerSgd, TheLeastRateOfCompressionIsAKey) {
  const auto values_sent = [](const std::string& spec, std::int64_t a, std::int64_t c) {
    const auto method = make(spec);
    std::size_t bytes = 0;
    for (const int round : {0, 1}) {
      bytes += method->max_payload_bytes(Shape::matrix(a, c), DType::kF32, round);
    }
    return bytes / sizeof(float);
  };
  EXPECT_EQ(values_sent("powersgd:rank=4", 8, 8), 64u);  // as much as the matrix: dense
  EXPECT_EQ(values_sent("powersgd:rank=3", 8, 8), 48u);
  EXPECT_EQ(values_sent("powersgd:rank=2,min_rate=2", 8, 8), 64u);  // 2 * 32 are no less
  EXPECT_EQ(values_sent("powersgd:rank=1,min_rate=2", 8, 8), 16u);
  EXPECT_EQ(values_sent("powersgd:rank=4,min_rate=0", 5, 2), 14u);
  EXPECT_EQ(values_sent("powersgd:rank=2,min_rate=3.5", 100, 10), 220u);  // 770 < 1000
  EXPECT_EQ(values_sent("powersgd:rank=3,min_rate=3.5", 100, 10), 1000u);
}

TEST(PowerSgd, PayloadBytesOfTheStudiesModel) {
  for (const auto& [rank, wanted] : {std::pair{1, 5520u}, {2, 10232u}, {4, 19656u}}) {
    const auto method = make("powersgd:rank=" + std::to_string(rank));
    std::size_t bytes = 0;
    for (const Shape& shape : {Shape::matrix(128, 784), Shape::vector(128), Shape::matrix(64, 128),
                               Shape::vector(64), Shape::matrix(10, 64), Shape::vector(10)}) {
      for (const int round : {0, 1}) bytes += method->max_payload_bytes(shape, DType::kF32, round);
    }
    EXPECT_EQ(bytes, wanted);
  }
  // A convolution (out, in, h, w) is the matrix (out, in h w).
  const Shape convolution{{8, 3, 5, 5}, 4};
  EXPECT_EQ(make("powersgd:2")->max_payload_bytes(convolution, DType::kF64, 1), 2u * 75u * 8u);
}

TEST(PowerSgd, TurnsAndLengthsAreChecked) {
  const auto method = make("powersgd:rank=1");
  const Shape shape = Shape::matrix(2, 3);
  auto coder = std::move(method->open(shape, {})).value();
  std::vector<float> grad(6);
  std::vector<std::byte> room(12);
  const ConstTensorView view(reinterpret_cast<const std::byte*>(grad.data()), shape, DType::kF32);
  EXPECT_EQ(coder->encode(0, room, {}).error().code(), Code::kInvalidArgument);
  ASSERT_TRUE(coder->begin(view, 0, {}).ok());
  EXPECT_EQ(coder->encode(1, room, {}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(coder->encode(0, ByteSpan(room).first(7), {}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(coder->encode(0, room, {}).value(), 8u);
  const ConstByteSpan longer(room);
  EXPECT_EQ(coder->absorb(0, std::span(&longer, 1), {}).code(), Code::kCorruptPayload);
  EXPECT_EQ(coder->absorb(0, {}, {}).code(), Code::kInvalidArgument);
}

TEST(PowerSgd, SpecsAreCanonicalAndBadOnesRefused) {
  EXPECT_EQ(make("powersgd")->spec(), "powersgd:rank=4");
  EXPECT_EQ(make("powersgd:2")->spec(), "powersgd:rank=2");
  EXPECT_EQ(make("powersgd:rank=1,warm=false")->spec(), "powersgd:rank=1,warm=false");
  EXPECT_EQ(make("powersgd:min_rate=1")->spec(), "powersgd:rank=4");
  EXPECT_EQ(make("powersgd:rank=1,min_rate=2.5")->spec(), "powersgd:rank=1,min_rate=2.5");
  for (const char* bad : {"powersgd:min_rate=-1", "powersgd:rank=0", "powersgd:rank=x",
                          "powersgd:warm=yes", "powersgd:rank=70000", "powersgd:columns=2"}) {
    EXPECT_EQ(Registry::builtin().make(bad).error().code(), Code::kInvalidArgument) << bad;
  }
  EXPECT_EQ(make("powersgd")->open_slices(Shape::matrix(2, 2), {}).error().code(),
            Code::kUnsupported);
}

}  // namespace
}  // namespace gradwire::powersgd_test
