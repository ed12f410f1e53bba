// Micro-batches that are under way together and end in any order give the bits of those that run
// one after another.
#include "trainer/step/gradient_fold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/support/fails.h"
#include "trainer/parameters.h"
#include "trainer/precision.h"
#include "trainer/step/step_gradients.h"

namespace gradwire::gradient_fold_test {
namespace {

using ::testing::ElementsAre;

constexpr int kMicroBatches = 4;

constexpr std::size_t kElems = 48;  // of the parameters
constexpr int kUse = 3;             // the gradient of a use of parameter 0

// `tied`: a layer uses parameter 0, too.
GradientTable table(bool tied = false) {
  GradientTable made;
  std::int64_t offset = 0;
  for (const std::int64_t elems : {5, 3, 40, 5}) {
    made.tensors.push_back({std::to_string(offset), Shape::vector(elems), 1, offset});
    offset += elems;
  }
  if (tied) {
    made.tied.push_back(0);
  } else {
    made.tensors.pop_back();
  }
  return made;
}

// Gradients of very different sizes, whose sum depends on the order.
float value(int micro, std::size_t element) {
  const auto at = static_cast<int>(element) * kMicroBatches + micro;
  return static_cast<float>((at * 7919) % 1009 - 500) * (micro % 2 == 0 ? 1.0F : 3e-5F);
}

// One parameter of one micro-batch is complete.
struct Event {
  int micro;
  int index;
};

// Of gradients `last` to 0.
std::vector<Event> one_after_another(const std::vector<int>& micros, int last = 2) {
  std::vector<Event> events;
  for (const int micro : micros) {
    for (int index = last; index >= 0; --index) events.push_back({micro, index});
  }
  return events;
}

std::vector<Event> side_by_side(const std::vector<int>& micros, int last = 2) {
  std::vector<Event> events;
  for (int index = last; index >= 0; --index) {
    for (const int micro : micros) events.push_back({micro, index});
  }
  return events;
}

struct Folded {
  std::vector<float> sum;
  std::vector<int> done;  // parameters, in the order in which they were
  std::vector<float> momenta;
};

struct Case {
  std::string name;
  TrainingOptions options = {};
  Demands demands = {};
  bool tied = false;

  int last() const { return tied ? kUse : 2; }
};

// All but the first begin together.
Folded fold(const Case& of, const std::vector<Event>& events, int steps, int at_a_time) {
  auto made = GradientFold::create(table(of.tied), of.options, of.demands, at_a_time);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  GradientFold& fold = made.value();
  Folded result;
  const double scale = 1 + of.options.loss_scale.initial;
  for (int step = 0; step < steps; ++step) {
    fold.begin_step();
    result.done.clear();
    std::vector<int> left(kMicroBatches, of.last() + 1);
    for (const Event& event : events) {
      auto& mine = left[static_cast<std::size_t>(event.micro)];
      if (mine == of.last() + 1) {
        const auto gradients = fold.begin(event.micro);
        EXPECT_TRUE(gradients.has_value()) << gradients.error().message();
        for (std::size_t i = 0; i < gradients.value().size(); ++i) {
          gradients.value()[i] = value(event.micro, i) * static_cast<float>(step + 1);
        }
      }
      const auto done = fold.ready(event.index, event.micro);
      EXPECT_TRUE(done.has_value());
      if (done.value()) result.done.push_back(fold.parameter_of(event.index));
      if (--mine > 0) continue;
      EXPECT_TRUE(fold.micro_batch_done(event.micro, scale).ok());
    }
  }
  for (int index = 0; index < 3; ++index) EXPECT_TRUE(fold.hand_over(index).has_value());
  auto handed = StepGradients::create({}, fold.outcome());
  EXPECT_TRUE(handed.has_value());
  handed.value().begin_step(fold.hands_scaled() ? scale : 1);
  result.sum.resize(kElems);
  EXPECT_TRUE(handed.value().read(0, result.sum).ok());
  for (const NamedTensor& named : fold.state()) {
    const auto values = elements<float>(ConstTensorView(named.tensor));
    result.momenta.insert(result.momenta.end(), values.begin(), values.end());
  }
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all{{"plain"},       {"passing"},      {"bf16"},     {"clipped"},
                        {"scaled"},      {"momentum"},     {"stored"},   {"stored_scaled"},
                        {"bf16_scaled"}, {"bf16_waiting"}, {"bf16_wide"}};
  for (const Case& each : std::vector<Case>(all)) {
    all.push_back({.name = each.name + "_tied", .tied = true});
  }
  for (Case& each : all) {
    TrainingOptions& o = each.options;
    o.accumulate = kMicroBatches;
    o.batch = kMicroBatches;
    o.momentum = 0;
    const auto has = [&](const char* word) { return each.name.find(word) != std::string::npos; };
    each.demands.gradients_pass = has("passing");
    if (has("bf16") || has("stored")) o.precision = Precision::kBF16;
    o.main_gradients = !has("stored");
    if (has("clipped")) o.clip_worker = 100;
    if (has("scaled") || has("waiting")) o.loss_scale.initial = 7;
    each.demands.takes_scaled = !has("waiting");
    each.demands.takes_narrow = !has("wide");
    if (!has("momentum")) continue;
    o.momentum = 0.9;
    o.momentum_at = MomentumAt::kWorker;
  }
  return all;
}

class AnyOrder : public ::testing::TestWithParam<Case> {};

TEST_P(AnyOrder, GivesTheBitsOfTheirNumbersOrder) {
  const Folded wanted = fold(GetParam(), one_after_another({0, 1, 2, 3}, GetParam().last()), 2, 1);
  std::vector<int> order{0, 1, 2, 3};
  do {
    for (const auto& events :
         {one_after_another(order, GetParam().last()), side_by_side(order, GetParam().last())}) {
      const Folded got = fold(GetParam(), events, 2, kMicroBatches);
      EXPECT_EQ(got.sum, wanted.sum) << ::testing::PrintToString(order);
      EXPECT_EQ(got.momenta, wanted.momenta) << ::testing::PrintToString(order);
      EXPECT_EQ(got.done, wanted.done) << ::testing::PrintToString(order);
    }
  } while (std::ranges::next_permutation(order).found);
}

INSTANTIATE_TEST_SUITE_P(Folds, AnyOrder, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// The test's gradients are no use where another order would give the same sum.
TEST(GradientFold, OrderMattersToThisTest) {
  std::vector<float> forward(kElems);
  std::vector<float> back(kElems);
  for (std::size_t i = 0; i < forward.size(); ++i) {
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      forward[i] += value(micro, i);
      back[i] += value(kMicroBatches - 1 - micro, i);
    }
  }
  EXPECT_NE(forward, back);
}

// From the last parameter to the first, each when the last of its micro-batches is in.
TEST(GradientFold, AParameterIsDoneWhenAllOfItsMicroBatchesAreIn) {
  Case of = cases().front();
  EXPECT_THAT(fold(of, side_by_side({2, 0, 3, 1}), 1, kMicroBatches).done, ElementsAre(2, 1, 0));
  auto made = GradientFold::create(table(), of.options, of.demands, kMicroBatches);
  ASSERT_TRUE(made.has_value());
  made.value().begin_step();
  for (const int micro : {3, 1, 2}) {
    ASSERT_TRUE(made.value().begin(micro).has_value());
    EXPECT_FALSE(made.value().ready(2, micro).value());
  }
  ASSERT_TRUE(made.value().begin(0).has_value());
  EXPECT_TRUE(made.value().ready(2, 0).value());
}

// A use is added up apart and joins once: whichever of both is whole last.
TEST(GradientFold, UsesOfAParameterJoinItWhenBothAreWhole) {
  Case of = cases().front();
  of.tied = true;
  std::vector<float> sums(kElems + 5);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (int micro = 0; micro < kMicroBatches; ++micro) sums[i] += value(micro, i);
    sums[i] *= 0.25F;
  }
  for (std::size_t i = 0; i < 5; ++i) sums[i] += sums[kElems + i];
  sums.resize(kElems);
  const Folded late = fold(of, one_after_another({0, 1, 2, 3}, kUse), 1, 1);
  EXPECT_EQ(late.sum, sums);
  EXPECT_THAT(late.done, ElementsAre(2, 1, 0));
  std::vector<Event> use_last = side_by_side({0, 1, 2, 3});
  for (int micro = 0; micro < kMicroBatches; ++micro) use_last.push_back({micro, kUse});
  const Folded early = fold(of, use_last, 1, kMicroBatches);
  EXPECT_EQ(early.sum, sums);
  EXPECT_THAT(early.done, ElementsAre(2, 1, 0));
}

// A worker's clipping and momentum are of its whole gradient, as if one layer had written it.
TEST(GradientFold, UsesJoinInAMicroBatchWhereThatIsWorkedOn) {
  for (const Case& each : cases()) {
    if (each.name != "clipped_tied" && each.name != "momentum_tied") continue;
    std::vector<float> sum(kElems);
    std::vector<double> momenta(kElems * kMicroBatches);
    for (int step = 0; step < 2; ++step) {
      std::ranges::fill(sum, 0.0F);
      for (int micro = 0; micro < kMicroBatches; ++micro) {
        std::vector<double> own(kElems);
        double square = 0;
        for (std::size_t i = 0; i < kElems; ++i) {
          own[i] = value(micro, i) + (i < 5 ? value(micro, kElems + i) : 0.0F);
          own[i] *= step + 1;
          if (each.options.clip_worker > 0) own[i] /= 2;  // fold()'s loss scale
          square += own[i] * own[i];
        }
        const double shorter =
            each.options.clip_worker > 0 ? std::min(1.0, 100 / std::sqrt(square)) : 1;
        for (std::size_t i = 0; i < kElems; ++i) {
          double& u = momenta[static_cast<std::size_t>(micro) * kElems + i];
          u = u * each.options.momentum + own[i] * shorter;
          sum[i] += static_cast<float>(u / kMicroBatches);
        }
      }
    }
    const Folded got = fold(each, one_after_another({0, 1, 2, 3}, kUse), 2, 1);
    for (std::size_t i = 0; i < kElems; ++i) {
      EXPECT_NEAR(got.sum[i], sum[i], 1e-5 * std::max(1.0F, std::abs(sum[i]))) << each.name << i;
    }
  }
}

// One beside the first needs no more memory than one after another; a second has none.
TEST(GradientFold, MoreAtATimeThanThereIsMemoryForAreRefused) {
  Case of = cases().front();
  auto made = GradientFold::create(table(), of.options, of.demands);
  ASSERT_TRUE(made.has_value());
  made.value().begin_step();
  ASSERT_TRUE(made.value().begin(1).has_value());
  ASSERT_TRUE(made.value().begin(0).has_value());
  const auto third = made.value().begin(2);
  ASSERT_FALSE(third.has_value());
  EXPECT_THAT(third.error(), fails(Code::kInternal, "micro-batch 2", "1 hold"));
}

// Workspace of as many gradients as may be under way beside the first, of those tensors that wait
// for their turn; where whole ones are needed they stay.
TEST(GradientFold, WhatWaitsIsCounted) {
  for (const bool whole : {false, true}) {
    Case of = cases().front();
    of.options.clip_worker = whole ? 100 : 0;
    of.options.places = {};
    auto made = GradientFold::create(table(), of.options, of.demands, 2);
    ASSERT_TRUE(made.has_value());
    GradientFold& fold = made.value();
    const auto held = [&] {
      return of.options.places.device.use().now_of(MemoryClass::kWorkspace);
    };
    fold.begin_step();
    for (const int micro : {1, 2}) {
      ASSERT_TRUE(fold.begin(micro).has_value());
      ASSERT_TRUE(fold.ready(2, micro).has_value());
    }
    EXPECT_EQ(held(), 2 * 40 * 4);
    ASSERT_TRUE(fold.begin(0).has_value());
    ASSERT_TRUE(fold.ready(2, 0).has_value());
    EXPECT_EQ(held(), whole ? 2 * 40 * 4 : 0);
  }
}

// What is handed over in 16 bits is the mean in fp32 of what each micro-batch stored, rounded once.
TEST(GradientFold, SixteenBitsAreTheMeanInFp32RoundedOnce) {
  for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
    Case of = cases().front();
    of.options.precision = precision;
    std::vector<float> wanted(48);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      for (int micro = 0; micro < kMicroBatches; ++micro) {
        std::vector<float> stored{value(micro, i)};
        round_to(precision, stored);
        wanted[i] += stored[0];
      }
      wanted[i] *= 0.25F;
    }
    const std::vector<float> means = wanted;
    round_to(precision, wanted);
    EXPECT_NE(means, wanted);
    for (float& one : wanted) one /= 2;  // fold()'s loss scale
    EXPECT_EQ(fold(of, one_after_another({0, 1, 2, 3}), 1, 1).sum, wanted);
  }
}

// By form, in the first bytes of a parameter: gradients, and fp32 sums beside 16 bits.
TEST(GradientFold, FormsHoldWhatTheySay) {
  struct Held {
    std::int64_t gradients;
    std::int64_t sums;
  };
  const auto held = [](const Case& of) {
    TrainingOptions options = of.options;
    options.places = {};
    const auto made = GradientFold::create(table(), options, of.demands);
    EXPECT_TRUE(made.has_value());
    const MemoryUse use = options.places.device.use();
    return Held{use.now_of(MemoryClass::kGradients) / 48,
                use.now_of(MemoryClass::kMainGradients) / 48};
  };
  Case of;
  const auto expect = [&](std::int64_t gradients, std::int64_t sums) {
    const Held now = held(of);
    EXPECT_EQ(now.gradients, gradients);
    EXPECT_EQ(now.sums, sums);
  };
  expect(4, 0);
  of.options.precision = Precision::kBF16;
  expect(2, 0);
  of.options.accumulate = 4;
  expect(0, 4);
  of.options.main_gradients = false;
  expect(2, 0);
  of.options.main_gradients = true;
  of.demands.each_micro_batch = true;
  expect(2, 4);
  of.demands.takes_narrow = false;
  expect(0, 4);
}

}  // namespace
}  // namespace gradwire::gradient_fold_test
