#include "compress/dgc/dgc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/text.h"
#include "compress/error_feedback/ef14.h"
#include "compress/error_feedback/legality.h"
#include "compress/little_endian.h"
#include "tests/reference/dgc_reference.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::dgc_test {
namespace {

using testing::CoderRanks;
using testing::DgcReference;
using testing::make;
using testing::normals;

template <typename T>
std::vector<T> state_of(CoderRanks<T>& ranks, const std::string& name) {
  for (const NamedTensor& one : ranks.coder(0).state()) {
    if (one.name != name) continue;
    const auto values = elements<T>(ConstTensorView(one.tensor));
    return {values.begin(), values.end()};
  }
  ADD_FAILURE() << "no state " << name;
  return {};
}

TEST(Dgc, TwoStepsByHand) {
  const auto method = make("dgc:ratio=0.3,momentum=0.5");
  auto ranks = CoderRanks<float>::open(*method, Shape::vector(3), 1);
  const auto first = ranks.value().step({{4, -2, 1}}, 0);
  EXPECT_EQ(first.own[0], (std::vector<float>{4, 0, 0}));
  EXPECT_EQ(state_of(ranks.value(), "residual"), (std::vector<float>{0, -2, 1}));
  EXPECT_EQ(state_of(ranks.value(), "residual.momentum"), (std::vector<float>{0, -2, 1}));
  // u = (1, -2, 0.5), v = (1, -4, 1.5): without masking u_0 would be 3.
  const auto second = ranks.value().step({{1, -1, 0}}, 1);
  EXPECT_EQ(second.own[0], (std::vector<float>{0, -4, 0}));
  EXPECT_EQ(state_of(ranks.value(), "residual"), (std::vector<float>{1, 0, 1.5F}));
  EXPECT_EQ(state_of(ranks.value(), "residual.momentum"), (std::vector<float>{1, 0, 0.5F}));
}

template <typename T>
void compare_with_reference(const std::string& keys, typename DgcReference<T>::Rules rules) {
  constexpr std::size_t kElems = 3001;  // the last vectors are not full
  const auto method = make("dgc:ratio=0.02,sample=1" + keys);
  auto ranks = CoderRanks<T>::open(*method, Shape::vector(kElems), 1);
  DgcReference<T> reference(kElems, rules);
  for (std::uint64_t step = 0; step < 12; ++step) {
    const auto grad = normals<T>(kElems, step);
    const auto outcome = ranks.value().step({grad}, step);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    ASSERT_EQ(outcome.own[0], reference.step(grad, 61)) << keys << " step " << step;
    ASSERT_EQ(state_of(ranks.value(), "residual"), reference.v) << keys << " step " << step;
    ASSERT_EQ(state_of(ranks.value(), "residual.momentum"), reference.u) << step;
  }
}

TEST(Dgc, ExactSelectionMatchesTheReference) {
  compare_with_reference<float>("", {});
  compare_with_reference<double>("", {});
  compare_with_reference<float>(",nesterov=true", {.nesterov = true});
  compare_with_reference<double>(",nesterov=true", {.nesterov = true});
  compare_with_reference<float>(",masking=false", {.masking = false});
  compare_with_reference<double>(",momentum=0.5,masking=false",
                                 {.momentum = 0.5, .masking = false});
}

// Between 0.8 k and k of the largest, never others in their place.
TEST(Dgc, SampledSelectionSendsTheLargestAndAboutK) {
  constexpr std::size_t kElems = 60'000;
  constexpr std::size_t kMost = 600;
  const auto method = make("dgc:ratio=0.01,momentum=0.9");
  auto ranks = CoderRanks<float>::open(*method, Shape::vector(kElems), 1);
  DgcReference<float> reference(kElems, {});
  std::set<std::size_t> counts;
  for (std::uint64_t step = 0; step < 12; ++step) {
    auto grad = normals<float>(kElems, step);
    if (step % 3 == 1) {  // heavy tails
      for (float& x : grad) x = std::exp(3 * x);
    }
    const auto outcome = ranks.value().step({grad}, step);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    const std::size_t count = load_le<std::uint32_t>(outcome.bytes[0][0].data());
    EXPECT_GE(count, kMost * 8 / 10);
    EXPECT_LE(count, kMost);
    counts.insert(count);
    ASSERT_EQ(outcome.own[0], reference.step(grad, count)) << "step " << step;
  }
  EXPECT_GT(counts.size(), 1u);  // some thresholds were above that of the k-th, some below
}

TEST(Dgc, MostlyZerosSendWhatThereIs) {
  std::vector<float> grad(50'000);
  grad[7] = 1;
  grad[49'999] = -0.5F;
  const auto method = make("dgc:ratio=0.01");
  auto ranks = CoderRanks<float>::open(*method, Shape::vector(50'000), 1);
  const auto outcome = ranks.value().step({grad}, 0);
  EXPECT_EQ(outcome.bytes[0][0].size(), 4u + 2 * 8);
  EXPECT_EQ(outcome.own[0], grad);
  for (float& x : grad) x = 3;  // ties: the first of them
  const auto ties = ranks.value().step({grad}, 1);
  EXPECT_EQ(ties.bytes[0][0].size(), 4u + 500 * 8);
  EXPECT_EQ(std::count(ties.own[0].begin(), ties.own[0].begin() + 500, 3.0F), 500);
  EXPECT_EQ(std::count(ties.own[0].begin() + 500, ties.own[0].end(), 0.0F), 49'500);
}

// To the bit: error feedback over exact top-k of momenta kept on the worker.
TEST(Dgc, WithoutMaskingItIsErrorFeedbackBehindWorkerMomentum) {
  constexpr std::size_t kElems = 5000;
  const auto dgc = make("dgc:ratio=0.01,sample=1,masking=false");
  const auto topk = make("topk:ratio=0.01");
  auto one = CoderRanks<float>::open(*dgc, Shape::vector(kElems), 2);
  auto two = CoderRanks<float>::open(
      *topk, Shape::vector(kElems), 2, 1, 77,
      [](std::unique_ptr<Coder> inner, const Shape& shape, const Compressor::Placement& where) {
        return std::move(make_ef14(std::move(inner), shape, where)).value();
      });
  std::vector<std::vector<float>> u(2, std::vector<float>(kElems));
  for (std::uint64_t step = 0; step < 15; ++step) {
    const std::vector<std::vector<float>> grads{normals<float>(kElems, 2 * step),
                                                normals<float>(kElems, 2 * step + 1)};
    for (std::size_t r = 0; r < 2; ++r) {
      for (std::size_t i = 0; i < kElems; ++i) u[r][i] = 0.9F * u[r][i] + grads[r][i];
    }
    const auto a = one.value().step(grads, step);
    const auto b = two.value().step(u, step);
    ASSERT_EQ(a.mean[0], b.mean[0]) << "step " << step;
  }
}

// T8: f_w = |x - c_w|^2 / 2 at ratio 1 is SGD with momentum, or with masking SGD without.
TEST(ToyT8, AtRatioOneItIsHeavyBallOrWithMaskingSgd) {
  const std::vector<std::vector<double>> centres{{0, 0.25, 0.5, 0.75, 1},
                                                 {2, 1.25, 0.5, -0.25, -1}};
  const auto run = [&](const char* spec) {
    const auto method = make(spec);
    auto ranks = CoderRanks<double>::open(*method, Shape::vector(5), 2);
    std::vector<double> x(5);
    for (std::uint64_t step = 0; step < 20; ++step) {
      std::vector<std::vector<double>> grads = centres;
      for (auto& grad : grads) {
        for (std::size_t i = 0; i < 5; ++i) grad[i] = x[i] - grad[i];
      }
      const auto mean = ranks.value().step(grads, step).mean[0];
      for (std::size_t i = 0; i < 5; ++i) x[i] -= 0.1 * mean[i];
    }
    return x;
  };
  const auto sgd = [&](double momentum) {
    std::vector<double> x(5);
    std::vector<double> m(5);
    for (int step = 0; step < 20; ++step) {
      for (std::size_t i = 0; i < 5; ++i) {
        m[i] = momentum * m[i] + x[i] - (centres[0][i] + centres[1][i]) / 2;
        x[i] -= 0.1 * m[i];
      }
    }
    return x;
  };
  double apart = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(run("dgc:ratio=1,masking=false")[i], sgd(0.9)[i], 1e-12);
    EXPECT_NEAR(run("dgc:ratio=1")[i], sgd(0)[i], 1e-12);
    apart = std::max(apart, std::abs(sgd(0.9)[i] - sgd(0)[i]));
  }
  EXPECT_NEAR(apart, 0.2231, 5e-5);
}

// Warm-up by a schedule: what is kept goes on from ratio to ratio.
TEST(Dgc, TheRatioComesDownInStages) {
  constexpr std::size_t kElems = 1000;
  const auto method = make("dgc:ratio=exp(0.25..0.001@8/4),sample=1");
  auto ranks = CoderRanks<float>::open(*method, Shape::vector(kElems), 1);
  DgcReference<float> reference(kElems, {});
  const std::size_t wanted[] = {250, 250, 63, 63, 16, 16, 4, 4, 1, 1};
  for (std::uint64_t step = 0; step < 10; ++step) {
    const auto grad = normals<float>(kElems, step);
    const auto outcome = ranks.value().step({grad}, step);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.bytes[0][0].size(), 4 + 8 * wanted[step]) << step;
    EXPECT_EQ(outcome.own[0], reference.step(grad, wanted[step])) << step;
  }
}

TEST(Dgc, WhatASecondStageRoundsAwayIsNotLost) {
  const auto method = make("dgc:ratio=0.5,sample=1|cast:bf16");
  auto ranks = CoderRanks<float>::open(*method, Shape::vector(4), 1);
  const auto outcome = ranks.value().step({{1.00390625F, 8, 0.5F, 0.25F}}, 0);
  EXPECT_EQ(outcome.own[0], (std::vector<float>{1, 8, 0, 0}));
  EXPECT_EQ(state_of(ranks.value(), "residual"), (std::vector<float>{0.00390625F, 0, 0.5F, 0.25F}));
}

TEST(Dgc, NonFiniteGradientsChangeNothing) {
  for (const std::size_t elems : {100, 5000}) {
    for (const char* spec : {"dgc:ratio=0.01", "dgc:ratio=0.01,clip=1"}) {
      const auto method = make(spec);
      auto ranks = CoderRanks<float>::open(*method, Shape::vector(static_cast<int>(elems)), 1);
      ASSERT_TRUE(ranks.value().step({normals<float>(elems, 1)}, 0).status.ok());
      const auto v = state_of(ranks.value(), "residual");
      const auto u = state_of(ranks.value(), "residual.momentum");
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity(), 3e38F}) {
        auto grad = normals<float>(elems, 2);
        grad[33] = bad;
        if (bad == 3e38F) {  // finite, but the sum of its momenta is not
          if (std::string_view(spec).ends_with("clip=1")) continue;
          ASSERT_TRUE(ranks.value().step({grad}, 1).status.ok());
          break;
        }
        const auto outcome = ranks.value().step({grad}, 1);
        EXPECT_THAT(outcome.status, fails(Code::kInvalidArgument, "dgc", "finite"));
        EXPECT_EQ(state_of(ranks.value(), "residual"), v);
        EXPECT_EQ(state_of(ranks.value(), "residual.momentum"), u);
      }
    }
  }
}

// A coder that was begun and encoded, but whose step never ended.
TEST(Dgc, AStepThatDoesNotEndChangesNothing) {
  const auto method = make("dgc:ratio=0.01");
  auto ranks = CoderRanks<float>::open(*method, Shape::vector(500), 1);
  ASSERT_TRUE(ranks.value().step({normals<float>(500, 1)}, 0).status.ok());
  const auto v = state_of(ranks.value(), "residual");
  const auto u = state_of(ranks.value(), "residual.momentum");
  const auto grad = normals<float>(500, 2);
  std::vector<std::byte> payload(method->max_payload_bytes(Shape::vector(500), DType::kF32, 0));
  ASSERT_TRUE(ranks.value().coder(0).begin(const_view_of(std::span(grad)), 1, {}).ok());
  ASSERT_TRUE(ranks.value().coder(0).encode(0, payload, {}).has_value());
  EXPECT_EQ(state_of(ranks.value(), "residual"), v);
  EXPECT_EQ(state_of(ranks.value(), "residual.momentum"), u);
}

TEST(Dgc, KeepsWhatItDidNotSendByItself) {
  const auto method = make("dgc");
  const auto verdict = check_pair(*method, Shape::vector(9), {.error_feedback = true});
  ASSERT_FALSE(verdict.has_value());
  EXPECT_THAT(verdict.error(), fails(Code::kInvalidArgument, "dgc", "ef=none"));
  EXPECT_TRUE(check_pair(*method, Shape::vector(9), {}).has_value());
}

TEST(Dgc, SpecsAreCanonical) {
  EXPECT_EQ(make("dgc")->spec(), "dgc:ratio=0.001");
  EXPECT_EQ(make("dgc:0.01,clip=2,momentum=0.9,masking=false,index=gaps|qsgd:4")->spec(),
            "dgc:ratio=0.01,masking=false,clip=2,index=gaps|qsgd:bits=4");
  EXPECT_EQ(make("dgc:sample=1,nesterov=true")->spec(), "dgc:ratio=0.001,nesterov=true,sample=1");
  for (const char* spec : {"dgc:ratio=0", "dgc:momentum=1", "dgc:clip=-1", "dgc:sample=2"}) {
    EXPECT_FALSE(Registry::builtin().make(spec).has_value()) << spec;
  }
}

}  // namespace
}  // namespace gradwire::dgc_test
