// What error feedback promises over a run, for every built-in method that may stand under it, with
// the scale that legality gives.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "compress/error_feedback/ef14.h"
#include "compress/error_feedback/legality.h"
#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::ef14_laws_test {
namespace {

using testing::CoderRanks;
using Vector = std::vector<float>;

const Shape kShape = Shape::matrix(20, 50);
constexpr std::size_t kElems = 1000;

// A method under error feedback on `size` ranks.
class Fed {
 public:
  Fed(std::string_view spec, const Shape& shape, int size, bool scaled = true)
      : compressor_(std::move(Registry::builtin().make(spec)).value()),
        scale_(check_pair(*compressor_, shape,
                          {.error_feedback = true, .ef_scale_auto = scaled, .allow_unsafe = true})
                   .value()
                   .scale),
        ranks_(std::move(CoderRanks<float>::open(
                             *compressor_, shape, size, 1, 77,
                             [this](auto coder, const Shape& s, const Compressor::Placement& w) {
                               return std::move(make_ef14(std::move(coder), s, w, scale_)).value();
                             }))
                   .value()) {}

  testing::StepOutcome<float> step(const std::vector<Vector>& grads, std::uint64_t t) {
    return ranks_.step(grads, t);
  }
  std::span<float> error(int rank) {
    return elements<float>(ranks_.coder(rank).state().at(0).tensor);
  }
  std::vector<NamedTensor> state(int rank) { return ranks_.coder(rank).state(); }
  const Compressor& compressor() const { return *compressor_; }
  Coder& coder(int rank) { return ranks_.coder(rank); }

 private:
  std::unique_ptr<Compressor> compressor_;
  double scale_;
  CoderRanks<float> ranks_;
};

// Fresh Gaussian gradients.
class Gradients {
 public:
  Vector draw(std::size_t count) {
    Vector g(count);
    for (float& x : g) x = static_cast<float>(normal_(generator_));
    return g;
  }
  std::vector<Vector> draw(std::size_t count, int ranks) {
    std::vector<Vector> all;
    for (int r = 0; r < ranks; ++r) all.push_back(draw(count));
    return all;
  }

 private:
  std::mt19937 generator_{7};
  std::normal_distribution<double> normal_;
};

template <typename Values>
double length(const Values& v) {
  double sum = 0;
  for (const auto x : v) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

class Ef14Laws : public ::testing::TestWithParam<const char*> {};

// epfml's SignReducer keeps p + sign instead of p - sign; then this sum does not close.
TEST_P(Ef14Laws, TelescopingNothingIsLost) {
  Fed fed(GetParam(), kShape, 3);
  Gradients gradients;
  std::vector<double> open(kElems);  // sum of mean gradients - sum of means - mean residual
  std::vector<double> total(kElems);
  for (std::uint64_t t = 0; t < 100; ++t) {
    const auto grads = gradients.draw(kElems, 3);
    const auto out = fed.step(grads, t);
    ASSERT_TRUE(out.status.ok()) << out.status.message();
    for (std::size_t i = 0; i < kElems; ++i) {
      const double mean = (double{grads[0][i]} + double{grads[1][i]} + double{grads[2][i]}) / 3;
      total[i] += mean;
      open[i] += mean - double{out.mean[0][i]};
    }
  }
  for (int r = 0; r < 3; ++r) {
    for (std::size_t i = 0; i < kElems; ++i) open[i] -= double{fed.error(r)[i]} / 3;
  }
  EXPECT_LT(length(open), 2e-6 * length(total));
}

// GRACE's EF-signSGD divides its first result by a learning rate it never multiplied by, and sums.
TEST_P(Ef14Laws, FirstStepIsTheMethodAndEqualRanksAgreeWithOne) {
  Gradients gradients;
  const Vector g = gradients.draw(kElems);
  Fed one(GetParam(), kShape, 1);
  const auto fed = one.step({g}, 0);
  auto bare = std::move(CoderRanks<float>::open(one.compressor(), kShape, 1)).value();
  EXPECT_EQ(bare.step({g}, 0).bytes, fed.bytes);

  const std::string_view spec = GetParam();
  if (spec.substr(0, 4) == "qsgd") return;  // ranks draw apart
  Fed four(spec, kShape, 4);
  const auto all = four.step({g, g, g, g}, 0);
  double apart = 0;
  for (std::size_t i = 0; i < kElems; ++i) {
    apart += std::pow(double{all.mean[2][i]} - double{fed.mean[0][i]}, 2);
  }
  EXPECT_LT(std::sqrt(apart), 1e-5 * length(fed.mean[0]));
}

TEST_P(Ef14Laws, ConstantGradientIsReachedOnAverage) {
  Fed fed(GetParam(), kShape, 1);
  const Vector g = Gradients().draw(kElems);
  std::vector<double> sum(kElems);
  double at_300 = 0;
  const auto off = [&](int steps) {
    double square = 0;
    for (std::size_t i = 0; i < kElems; ++i) square += std::pow(sum[i] / steps - double{g[i]}, 2);
    return std::sqrt(square) / length(g);
  };
  for (int t = 1; t <= 1200; ++t) {
    const auto out = fed.step({g}, static_cast<std::uint64_t>(t));
    for (std::size_t i = 0; i < kElems; ++i) sum[i] += double{out.mean[0][i]};
    if (t == 300) at_300 = off(300);
  }
  // A quarter, were the residual as long as after 300 steps; it may still be growing.
  EXPECT_LE(off(1200), 0.6 * at_300 + 1e-6);
}

TEST_P(Ef14Laws, ResumedRunSendsTheSameBytes) {
  Fed first(GetParam(), kShape, 2);
  Fed second(GetParam(), kShape, 2);
  Gradients gradients;
  for (std::uint64_t t = 0; t < 5; ++t) (void)first.step(gradients.draw(kElems, 2), t).status.ok();
  for (int r = 0; r < 2; ++r) {
    const auto from = first.state(r);
    const auto to = second.state(r);
    ASSERT_EQ(from.size(), to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(from[i].name, to[i].name);
      ASSERT_EQ(from[i].tensor.bytes().size(), to[i].tensor.bytes().size());
      std::memcpy(to[i].tensor.data(), from[i].tensor.data(), from[i].tensor.bytes().size());
    }
  }
  for (std::uint64_t t = 5; t < 8; ++t) {
    const auto grads = gradients.draw(kElems, 2);
    const auto a = first.step(grads, t);
    const auto b = second.step(grads, t);
    EXPECT_EQ(a.bytes, b.bytes) << t;
    EXPECT_EQ(a.mean, b.mean) << t;
  }
}

TEST_P(Ef14Laws, FailedStepLeavesTheResidual) {
  Fed fed(GetParam(), kShape, 1);
  Gradients gradients;
  ASSERT_TRUE(fed.step({gradients.draw(kElems)}, 0).status.ok());
  const Vector before(fed.error(0).begin(), fed.error(0).end());
  const Vector g = gradients.draw(kElems);
  const ConstTensorView view(reinterpret_cast<const std::byte*>(g.data()), kShape, DType::kF32);
  ASSERT_TRUE(fed.coder(0).begin(view, 1, {}).ok());
  std::vector<std::byte> payload(fed.compressor().max_payload_bytes(kShape, DType::kF32, 0));
  ASSERT_TRUE(fed.coder(0).encode(0, payload, {}).has_value());
  const ConstByteSpan cut = ConstByteSpan(payload).first(3);
  EXPECT_FALSE(fed.coder(0).absorb(0, std::span(&cut, 1), {}).ok());
  EXPECT_EQ(Vector(fed.error(0).begin(), fed.error(0).end()), before);
}

INSTANTIATE_TEST_SUITE_P(Methods, Ef14Laws,
                         ::testing::Values("signsgd", "signsgd:bucket=tensor", "topk:ratio=0.01",
                                           "qsgd:bits=4", "qsgd:levels=1,norm=l2", "powersgd:1",
                                           "powersgd:rank=4,warm=false"),
                         [](const auto& info) {
                           std::string name;
                           for (const char c : std::string_view(info.param)) {
                             name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           }
                           return name;
                         });

// |e|/|g| on fresh Gaussian gradients; figures of tests/reference/toys.py.
double steady(const char* spec, bool scaled, std::uint64_t steps) {
  constexpr std::size_t kMany = 8192;
  Fed fed(spec, Shape::vector(kMany), 1, scaled);
  Gradients gradients;
  Vector g;
  for (std::uint64_t t = 0; t < steps; ++t) {
    g = gradients.draw(kMany);
    if (!fed.step({g}, t).status.ok()) return std::numeric_limits<double>::infinity();
  }
  return length(fed.error(0)) / length(g);
}

TEST(Ef14Residual, SettlesWhereItShould) {
  EXPECT_NEAR(steady("signsgd:bucket=tensor", true, 60) / 0.76, 1, 0.05);
  EXPECT_NEAR(steady("topk:ratio=0.01", true, 400) / 4.0, 1, 0.1);
  EXPECT_NEAR(steady("qsgd:levels=1,norm=l2,bucket=512", true, 200) / 4.2, 1, 0.1);
}

TEST(Ef14Residual, DivergesOverHighVarianceWithoutTheScale) {
  EXPECT_GT(steady("qsgd:levels=1,norm=l2,bucket=512", false, 40), 1e4);
}

}  // namespace
}  // namespace gradwire::ef14_laws_test
