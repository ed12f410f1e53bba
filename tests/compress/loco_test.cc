#include "compress/error_feedback/loco.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "compress/error_feedback/stored_residual.h"
#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::loco_test {
namespace {

using testing::CoderRanks;

template <typename T>
class Fed {
 public:
  Fed(std::string_view spec, const Shape& shape, int size, LocoOptions options,
      std::uint64_t tensor = 77)
      : compressor_(std::move(Registry::builtin().make(spec)).value()),
        ranks_(std::move(
                   CoderRanks<T>::open(
                       *compressor_, shape, size, 1, tensor,
                       [options](auto coder, const Shape& s, const auto& where) {
                         return std::move(make_loco(std::move(coder), s, where, options)).value();
                       }))
                   .value()) {}
  testing::StepOutcome<T> step(const std::vector<std::vector<T>>& grads, std::uint64_t t) {
    return ranks_.step(grads, t);
  }
  std::vector<NamedTensor> state(int rank = 0) { return ranks_.coder(rank).state(); }
  double error(std::size_t i, int rank = 0) {
    const auto all = state(rank);
    return stored_value(all[0].tensor, all.back().tensor, i);
  }

 private:
  std::unique_ptr<Compressor> compressor_;
  CoderRanks<T> ranks_;
};

// bfloat16 near 1 has steps of 2^-7, so 1 + 2^-9 decodes to 1 and leaves 2^-9.
TEST(Loco, ResidualIsAMovingAverageByHand) {
  Fed<double> fed("cast:bf16", Shape::vector(1), 1,
                  {.storage = ResidualStorage::kFull, .beta = 0.75, .reset = 0});
  const std::vector<std::vector<double>> g{{1 + 0x1p-9}};
  EXPECT_EQ(fed.step(g, 0).mean[0][0], 1);
  EXPECT_EQ(fed.error(0), 0x1p-9 / 4);
  EXPECT_EQ(fed.step(g, 1).mean[0][0], 1);  // p = 1 + 2^-9 + 2^-11
  EXPECT_EQ(fed.error(0), 0.75 * 0x1p-11 + 0.25 * (0x1p-9 + 0x1p-11));
}

// The reference counts calls over all tensors and resets the one that trips.
TEST(Defect, D4_17_ResetsAreOfStepsAndMeetEveryTensor) {
  Fed<double> a("topk:k=1", Shape::vector(2), 1,
                {.storage = ResidualStorage::kFull, .beta = 0.5, .reset = 3}, 1);
  Fed<double> b("topk:k=1", Shape::vector(2), 1,
                {.storage = ResidualStorage::kFull, .beta = 0.5, .reset = 3}, 2);
  for (std::uint64_t t = 0; t < 10; ++t) {
    for (Fed<double>* fed : {&a, &b}) {
      const double before = fed->error(1);
      ASSERT_TRUE(fed->step({{10, 1}}, t).status.ok());
      // Element 1 stays behind: p = 1 + e, e <- e / 2 + p / 2; afresh at steps 3, 6 and 9.
      const double e = t % 3 == 0 ? 0 : before;
      EXPECT_EQ(fed->error(1), e / 2 + (1 + e) / 2) << t;
    }
  }
}

TEST(Loco, AnInt8ResidualTakesAByteAnElementAndAScaleForEvery256) {
  Fed<float> fed("topk:k=1", Shape::vector(600), 1, {});
  const auto state = fed.state();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].name, "error");
  EXPECT_EQ(state[0].tensor.bytes().size(), 600u);
  EXPECT_EQ(state[1].name, "error.scale");
  EXPECT_EQ(state[1].tensor.bytes().size(), 12u);
}

std::vector<float> wave(std::size_t count, std::uint64_t t, int rank) {
  std::vector<float> g(count);
  for (std::size_t i = 0; i < count; ++i) {
    g[i] = static_cast<float>(
        std::sin(0.7 * static_cast<double>(i) + 0.3 * static_cast<double>(t) + 2.1 * rank));
  }
  return g;
}

class Storage : public ::testing::TestWithParam<ResidualStorage> {};

// What storing rounds has mean zero: 1,000 draws leave at most a few of sqrt(1000) half steps.
TEST_P(Storage, TelescopesToTheDocumentedTolerance) {
  constexpr std::size_t kElems = 300;
  constexpr int kSteps = 1000;
  constexpr int kRanks = 2;
  Fed<float> fed("topk:k=30", Shape::vector(kElems), kRanks,
                 {.storage = GetParam(), .beta = 0, .reset = 0});
  std::vector<double> open(kElems);
  double largest = 0;
  for (std::uint64_t t = 0; t < kSteps; ++t) {
    const std::vector<std::vector<float>> g{wave(kElems, t, 0), wave(kElems, t, 1)};
    const auto out = fed.step(g, t);
    ASSERT_TRUE(out.status.ok()) << out.status.message();
    for (std::size_t i = 0; i < kElems; ++i) {
      open[i] += (static_cast<double>(g[0][i]) + static_cast<double>(g[1][i])) / 2 -
                 static_cast<double>(out.mean[0][i]);
      largest = std::max(largest, std::abs(fed.error(i)));
    }
  }
  const double step = GetParam() == ResidualStorage::kBf16   ? 0x1p-8 * largest
                      : GetParam() == ResidualStorage::kInt8 ? largest / 254
                                                             : 1e-7 * largest;
  double square = 0;
  for (std::size_t i = 0; i < kElems; ++i) {
    const double off = open[i] - (fed.error(i, 0) + fed.error(i, 1)) / kRanks;
    square += off * off / kElems;
    EXPECT_LT(std::abs(off), 5 * std::sqrt(kSteps / 2.0) * step) << i;
  }
  EXPECT_LE(std::sqrt(square), std::sqrt(kSteps / 2.0) * step);
}

TEST_P(Storage, ResumedRunSendsTheSameBytes) {
  const LocoOptions options{.storage = GetParam(), .beta = 0.8, .reset = 4};
  Fed<float> first("signsgd:bucket=tensor", Shape::vector(300), 2, options);
  Fed<float> second("signsgd:bucket=tensor", Shape::vector(300), 2, options);
  const auto grads = [](std::uint64_t t) { return std::vector{wave(300, t, 0), wave(300, t, 1)}; };
  for (std::uint64_t t = 0; t < 6; ++t) ASSERT_TRUE(first.step(grads(t), t).status.ok());
  for (int r = 0; r < 2; ++r) {
    const auto from = first.state(r);
    const auto to = second.state(r);
    ASSERT_EQ(from.size(), to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      std::memcpy(to[i].tensor.data(), from[i].tensor.data(), from[i].tensor.bytes().size());
    }
  }
  for (std::uint64_t t = 6; t < 10; ++t) {
    const auto a = first.step(grads(t), t);
    const auto b = second.step(grads(t), t);
    EXPECT_EQ(a.bytes, b.bytes) << t;
    EXPECT_EQ(a.mean, b.mean) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Storage,
                         ::testing::Values(ResidualStorage::kFull, ResidualStorage::kBf16,
                                           ResidualStorage::kInt8));

// 0.3 of a step up, 0.7 down: over many steps the average is the value.
TEST(StoredResidualTest, RoundingIsUnbiased) {
  for (const auto& [storage, value, step] :
       {std::tuple{ResidualStorage::kBf16, 1 + 0.3 * 0x1p-7, 0x1p-7},
        std::tuple{ResidualStorage::kInt8, 0.503, 1.0 / 127}}) {
    std::vector<double> values(512, value);
    values[0] = values[256] = 1;
    StoredResidual<double> stored(Shape::vector(512), storage, {}, 0);
    double sum = 0;
    constexpr int kSteps = 400;
    for (std::uint64_t t = 0; t < kSteps; ++t) {
      ASSERT_TRUE(stored.store(values, t).ok());
      std::vector<double> back(510);
      stored.load(1, back);
      for (std::size_t i = 0; i < back.size(); ++i) {
        if (i != 255) {
          EXPECT_LE(std::abs(back[i] - value), step);
          sum += back[i] / (509.0 * kSteps);
        }
      }
    }
    // 203,600 draws of deviation at most half a step.
    EXPECT_NEAR(sum, value, 5 * step / 2 / std::sqrt(509.0 * kSteps));
  }
}

TEST(StoredResidualTest, EdgesOfTheRange) {
  const float most = std::numeric_limits<float>::max();
  for (const ResidualStorage storage : {ResidualStorage::kBf16, ResidualStorage::kInt8}) {
    StoredResidual<float> stored(Shape::vector(5), storage, {}, 0);
    const std::vector<float> values{0, -0.0F, most, -most, 1e-42F};
    ASSERT_TRUE(stored.store(values, 1).ok());
    std::vector<float> back(5);
    stored.load(0, back);
    EXPECT_EQ(back[0], 0);
    EXPECT_EQ(back[1], 0);
    EXPECT_NEAR(back[2] / most, 1, 0x1p-7);
    EXPECT_NEAR(back[3] / most, -1, 0x1p-7);
    EXPECT_NEAR(back[4], 0, 2e-38F);
    ASSERT_TRUE(stored.store(std::vector<float>(5), 2).ok());  // a block of zeros
    stored.load(0, back);
    EXPECT_EQ(back, std::vector<float>(5));
    StoredResidual<double> wide(Shape::vector(1), storage, {}, 0);
    ASSERT_TRUE(wide.store(std::vector<double>{3}, 1).ok());
    EXPECT_EQ(wide.store(std::vector<double>{1e300}, 2).code(), Code::kInvalidArgument);
    std::vector<double> kept(1);
    wide.load(0, kept);
    EXPECT_NEAR(kept[0], 3, 1e-6);
  }
}

TEST(Loco, NonFiniteGradientIsNamedAndLeavesTheResidual) {
  Fed<float> fed("topk:k=1", Shape::vector(3), 1, {});
  ASSERT_TRUE(fed.step({{1, 2, 3}}, 0).status.ok());
  const double before = fed.error(1);
  const auto out = fed.step({{1, std::numeric_limits<float>::infinity(), 3}}, 1);
  EXPECT_THAT(out.status, fails(Code::kInvalidArgument, "element 1", "(3)"));
  EXPECT_EQ(fed.error(1), before);
  EXPECT_TRUE(fed.step({{1, 2, 3}}, 2).status.ok());
}

TEST(Loco, RefusesWhatItCannotServe) {
  const Compressor::Placement where;
  const auto none = std::move(Registry::builtin().make("none")).value();
  EXPECT_FALSE(make_loco(nullptr, Shape::vector(1), where, {}).has_value());
  for (const LocoOptions& bad : {LocoOptions{.beta = 1}, LocoOptions{.beta = -0.1},
                                 LocoOptions{.reset = -1}, LocoOptions{.scale = 0}}) {
    auto inner = std::move(none->open(Shape::vector(1), where)).value();
    EXPECT_FALSE(make_loco(std::move(inner), Shape::vector(1), where, bad).has_value());
  }
  Fed<float> empty("none", Shape::vector(0), 2, {});
  EXPECT_TRUE(empty.step({{}, {}}, 0).status.ok());
}

}  // namespace
}  // namespace gradwire::loco_test
