// Every optimizer against its formula in double, on any slicing, and over a restart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "tests/reference/optimizers_reference.h"
#include "tests/support/fails.h"
#include "trainer/optimizers/optimizer.h"
#include "trainer/sgd.h"
#include "trainer/step/clipping.h"

namespace gradwire::optimizers_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

using ::testing::ElementsAre;

// A matrix, a bias, a tensor whose gradient is always zero, and one of zeros.
ParameterTable table() {
  return {{"a.weight", Shape::matrix(7, 5), 5, 0},
          {"a.bias", Shape::vector(7), 5, 35},
          {"dead", Shape::matrix(2, 3), 3, 42},
          {"zeros", Shape::matrix(3, 3), 3, 48}};
}
constexpr std::size_t kElems = 57;

std::vector<float> draw(int step) {
  const RandomStream draws(1, RandomUse::kTest, 5, kSharedRank, 0,
                           static_cast<std::uint64_t>(step));
  std::vector<float> values(kElems);
  for (std::size_t i = 0; i < kElems; ++i) values[i] = 2 * draws.uniform(i) - 1;
  return values;
}
std::vector<float> start() {
  std::vector<float> x = draw(1000);
  std::fill(x.begin() + 48, x.end(), 0.0F);
  return x;
}
std::vector<float> gradient(int step) {
  std::vector<float> g = draw(step);
  std::fill(g.begin() + 42, g.begin() + 48, 0.0F);
  return g;
}

OptimizerOptions options(const std::string& name, double weight_decay) {
  OptimizerOptions o;
  o.name = name;
  o.weight_decay = weight_decay;
  o.beta2 = 0.95;
  return o;
}

std::unique_ptr<Optimizer> make(const OptimizerOptions& o, SliceTable slices,
                                SumOverShards sum = nullptr) {
  auto made = make_optimizer(o, std::move(slices), std::move(sum));
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return std::move(made).value();
}

class EveryOptimizer : public ::testing::TestWithParam<std::tuple<const char*, double>> {
 protected:
  OptimizerOptions options_ = options(std::get<0>(GetParam()), std::get<1>(GetParam()));
  double rate(int step) const { return 0.02 / (1 + 0.1 * step); }
};

TEST_P(EveryOptimizer, FollowsItsFormulaInDouble) {
  const ParameterTable tensors = table();
  std::vector<float> x = start();
  std::vector<reference::Tensor> wanted;
  for (const ParameterInfo& info : tensors) {
    const auto first = x.begin() + info.offset;
    reference::Tensor tensor{std::vector<double>(first, first + info.shape.elems())};
    tensor.decays = info.shape.rank > 1;
    wanted.push_back(std::move(tensor));
  }
  const auto optimizer = make(options_, whole_slices(tensors));
  for (int step = 0; step < 40; ++step) {
    const std::vector<float> g = gradient(step);
    ASSERT_TRUE(optimizer->step(x, g, rate(step)).ok());
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const auto first = g.begin() + tensors[t].offset;
      reference::step(wanted[t], std::vector<double>(first, first + tensors[t].shape.elems()),
                      options_, rate(step), step + 1);
    }
  }
  EXPECT_EQ(optimizer->steps(), 40);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    for (std::size_t i = 0; i < wanted[t].x.size(); ++i) {
      // 40 roundings of numbers up to 2, and of what they are computed from.
      EXPECT_NEAR(x[static_cast<std::size_t>(tensors[t].offset) + i], wanted[t].x[i], 2e-5)
          << tensors[t].name << " " << i;
    }
  }
}

TEST_P(EveryOptimizer, GoesOnFromItsStateBitForBit) {
  const SliceTable slices = whole_slices(table());
  std::vector<float> x = start();
  const auto whole = make(options_, slices);
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(whole->step(x, gradient(step), rate(step)).ok());
  const auto restored = make(options_, slices);
  const auto from = whole->state();
  const auto to = restored->state();
  ASSERT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].name, to[i].name);
    const auto bytes = from[i].tensor.bytes();
    ASSERT_EQ(bytes.size(), to[i].tensor.bytes().size());
    std::copy(bytes.begin(), bytes.end(), to[i].tensor.bytes().begin());
  }
  restored->set_steps(whole->steps());
  std::vector<float> y = x;
  for (int step = 5; step < 10; ++step) {
    ASSERT_TRUE(whole->step(x, gradient(step), rate(step)).ok());
    ASSERT_TRUE(restored->step(y, gradient(step), rate(step)).ok());
  }
  EXPECT_EQ(x, y);
}

// All but lamb, whose norms are sums over slices.
class Elementwise : public EveryOptimizer {};

TEST_P(Elementwise, TheSameBitsOnAnySlicing) {
  const SliceTable slices = whole_slices(table());
  std::vector<float> whole = start();
  const auto one = make(options_, slices);
  for (int step = 0; step < 8; ++step)
    ASSERT_TRUE(one->step(whole, gradient(step), rate(step)).ok());
  // Inside tensors, at their borders, and a part without anything.
  const std::array<std::int64_t, 6> cuts{0, 3, 36, 36, 49, kElems};
  std::vector<float> parts = start();
  for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
    const auto count = static_cast<std::size_t>(cuts[c + 1] - cuts[c]);
    const auto first = static_cast<std::size_t>(cuts[c]);
    const auto part = make(options_, slices_within(slices, cuts[c], cuts[c + 1]));
    for (int step = 0; step < 8; ++step) {
      const std::vector<float> g = gradient(step);
      ASSERT_TRUE(part->step(std::span(parts).subspan(first, count),
                             std::span(g).subspan(first, count), rate(step))
                      .ok());
    }
  }
  EXPECT_EQ(parts, whole);
}

INSTANTIATE_TEST_SUITE_P(All, Elementwise,
                         ::testing::Combine(::testing::Values("sgd", "nesterov", "adamw"),
                                            ::testing::Values(0.0, 0.1)));
INSTANTIATE_TEST_SUITE_P(All, EveryOptimizer,
                         ::testing::Combine(::testing::Values("sgd", "nesterov", "adamw", "lamb"),
                                            ::testing::Values(0.0, 0.1)));

TEST(Optimizers, SgdIsTheFusedPassBitForBit) {
  std::vector<float> x = start();
  std::vector<float> y = x;
  std::vector<float> m(kElems);
  const auto sgd = make(options("sgd", 0), whole_slices(table()));
  for (int step = 0; step < 6; ++step) {
    ASSERT_TRUE(sgd->step(x, gradient(step), 0.05).ok());
    descend_with_momentum(y, m, gradient(step), 0.05F, 0.9F);
  }
  EXPECT_EQ(x, y);
  const auto state = sgd->state();
  ASSERT_EQ(state.size(), 4u);
  EXPECT_EQ(state[1].name, "a.bias.momentum");
  EXPECT_EQ(elements<float>(ConstTensorView(state[1].tensor))[2], m[37]);
  OptimizerOptions plain = options("sgd", 0);
  plain.momentum = 0;
  EXPECT_TRUE(make(plain, whole_slices(table()))->state().empty());
}

TEST(Optimizers, LambOfTwoShardsIsThatOfTheWhole) {
  const OptimizerOptions lamb = options("lamb", 0.1);
  const SliceTable slices = whole_slices(table());
  std::vector<float> whole = start();
  const auto one = make(lamb, slices);
  for (int step = 0; step < 8; ++step) ASSERT_TRUE(one->step(whole, gradient(step), 0.02).ok());

  std::vector<float> parts = start();
  std::barrier<> barrier(2);
  std::array<std::vector<double>, 2> sums;
  const auto shard = [&](std::size_t rank) {
    const std::size_t first = rank == 0 ? 0 : 20;
    const std::size_t count = rank == 0 ? 20 : kElems - 20;
    const auto sum = [&, rank](std::span<double> own) {
      sums[rank].assign(own.begin(), own.end());
      barrier.arrive_and_wait();
      for (std::size_t i = 0; i < own.size(); ++i) own[i] = sums[0][i] + sums[1][i];
      barrier.arrive_and_wait();
      return Status();
    };
    const auto part = make(lamb,
                           slices_within(slices, static_cast<std::int64_t>(first),
                                         static_cast<std::int64_t>(first + count)),
                           sum);
    for (int step = 0; step < 8; ++step) {
      const std::vector<float> g = gradient(step);
      EXPECT_TRUE(part->step(std::span(parts).subspan(first, count),
                             std::span(g).subspan(first, count), 0.02)
                      .ok());
    }
  };
  std::thread other([&] { shard(1); });
  shard(0);
  other.join();
  for (std::size_t i = 0; i < kElems; ++i) EXPECT_NEAR(parts[i], whole[i], 1e-6) << i;
}

TEST(Optimizers, DecayTakesMatricesAlone) {
  for (const char* name : {"sgd", "nesterov", "adamw"}) {
    std::vector<float> x(kElems, 1.0F);
    const std::vector<float> g(kElems, 0.0F);
    ASSERT_TRUE(make(options(name, 0.5), whole_slices(table()))->step(x, g, 0.5).ok());
    EXPECT_EQ(x[41], 1.0F) << name;                                     // a.bias
    EXPECT_EQ(x[0], std::string(name) == "nesterov" ? 0.525F : 0.75F);  // 1 - 0.5 * 0.5 (* 1.9)
  }
}

TEST(Slices, OfAPartKeepTheirPlaceInTheTensor) {
  const SliceTable cut = slices_within(whole_slices(table()), 10, 44);
  ASSERT_EQ(cut.size(), 4u);
  EXPECT_EQ(slice_elems(cut), 34);
  const auto place = [&](std::size_t t) {
    return std::vector<std::int64_t>{cut[t].begin, cut[t].elems, cut[t].offset};
  };
  EXPECT_THAT(place(0), ElementsAre(10, 25, 0));
  EXPECT_THAT(place(1), ElementsAre(0, 7, 25));
  EXPECT_THAT(place(2), ElementsAre(0, 2, 32));
  EXPECT_EQ(cut[3].elems, 0);
  EXPECT_FALSE(cut[1].decays);
}

TEST(Optimizers, RefuseBadOptions) {
  const auto refusal = [](auto change) {
    OptimizerOptions o;
    change(o);
    return make_optimizer(o, whole_slices(table())).error();
  };
  using O = OptimizerOptions;
  EXPECT_THAT(refusal([](O& o) { o.name = "adam"; }), fails(kInvalid, "adam", "sgd", "nesterov"));
  EXPECT_THAT(refusal([](O& o) { o.momentum = 1; }), fails(kInvalid, "momentum 1", "0"));
  EXPECT_THAT(refusal([](O& o) { o.beta1 = -0.1; }), fails(kInvalid, "beta1 -0.1"));
  EXPECT_THAT(refusal([](O& o) { o.beta2 = std::nan(""); }), fails(kInvalid, "beta2 nan"));
  EXPECT_THAT(refusal([](O& o) { o.epsilon = 0; }), fails(kInvalid, "epsilon 0"));
  EXPECT_THAT(refusal([](O& o) { o.weight_decay = -1; }), fails(kInvalid, "weight_decay -1"));
}

TEST(Clipping, ByHand) {
  std::vector<float> g{3, 0, -4};
  EXPECT_EQ(norm(g), 5);
  clip_to(g, 5, 10);
  EXPECT_THAT(g, ElementsAre(3, 0, -4));
  clip_to(g, 5, 2.5);
  EXPECT_THAT(g, ElementsAre(1.5F, 0, -2));
  clip_to(g, std::numeric_limits<double>::infinity(), 1);
  EXPECT_THAT(g, ElementsAre(1.5F, 0, -2));
  EXPECT_TRUE(all_finite(g));
  EXPECT_TRUE(all_finite({}));
  for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    g[1] = odd;
    EXPECT_FALSE(all_finite(g));
  }
  g[1] = std::numeric_limits<float>::max();
  EXPECT_TRUE(all_finite(g));
}

}  // namespace
}  // namespace gradwire::optimizers_test
