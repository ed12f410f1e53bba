// Training in 16 bits on a device beside training on the host. What is rounded, and where, is the
// same; what differs before by rounding in fp32 may be rounded to another neighbour, a flip: an
// element then is one ulp of 16 bits off, and few elements are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/gpu/step_cases.h"
#include "trainer/cuda/make_kernels.h"
#include "trainer/stored_gradients.h"

namespace gradwire::narrow_training_test {
namespace {

using gpu::distance;
using gpu::Family;
using gpu::kFirstStep;
using gpu::kStream;
using gpu::options_of;
using gpu::StepCase;
using gpu::train;
using gpu::Trained;
using ::testing::ElementsAreArray;

constexpr std::array kNarrow{Precision::kBF16, Precision::kF16};

// The distance of neighbours about 1.
double ulp_of_one(Precision precision) { return precision == Precision::kBF16 ? 0x1p-7 : 0x1p-10; }

// The distance of a precision's neighbours at `value`.
double ulp_at(Precision precision, double value) {
  const double least = precision == Precision::kBF16 ? 0x1p-126 : 0x1p-14;
  const double magnitude = std::max(std::abs(value), least);
  return std::exp2(std::floor(std::log2(magnitude))) * ulp_of_one(precision);
}

TrainingOptions narrow_options(Precision precision, std::int64_t steps) {
  TrainingOptions options = options_of(steps);
  options.precision = precision;
  // A power of two: it moves what is rounded to fp16's subnormals alone.
  if (precision == Precision::kF16) options.loss_scale.initial = 1024;
  return options;
}

// Flips that fp32 allows. A tensor of which n elements are not 0 is, before it is rounded, off by a
// vector of length E, kFirstStep of its own at most (as training_test.cc has it), which sums'
// rounding spreads over those elements: e = E / sqrt(n) each, in root mean square, and no more in
// the mean. (What is 0 is a sum of zeros, and exact.) An element flips where a midpoint between
// neighbours, of which there is one every ulp, lies between the two values: in a share
// min(1, e / ulp) of cases. Over all elements that makes F = sum min(1, e / ulp_i) flips in the
// mean, and of independent ones F + 4 sqrt(F) + 4 at most, but once in tens of thousands. As a flip
// is an ulp, their length is the root of sum min(1, e / ulp_i) ulp_i^2, that of the rounding itself
// the root of sum ulp_i^2 / 12. What rounded otherwise than the host would flip every second
// element.
struct AllowedFlips {
  double share = 0;          // of all elements, that flip
  double over_rounding = 0;  // flips' length over the rounding's
};

// What a tensor may be off by before it is rounded. Sums of terms that cancel differ by the terms'
// rounding, not by their own.
double noise_of(const std::vector<float>& tensor, double whole) {
  const double own = gpu::length(tensor);
  return kFirstStep * (own > 1e-3 * whole ? own : whole);
}

double length_of(const gpu::Tensors& tensors) {
  double whole = 0;
  for (const auto& tensor : tensors) whole = std::hypot(whole, gpu::length(tensor));
  return whole;
}

// Of tensors that were rounded at `scale` times themselves.
AllowedFlips allowed_flips(const gpu::Tensors& tensors, Precision precision, double scale) {
  const double whole = length_of(tensors);
  double flips = 0;
  double all = 0;
  double squares = 0;
  double rounding = 0;
  for (const auto& tensor : tensors) {
    const auto zeros = std::ranges::count(tensor, 0.0F);
    const double some = std::max(1.0, static_cast<double>(std::ssize(tensor) - zeros));
    const double each = noise_of(tensor, whole) / std::sqrt(some);
    for (const float value : tensor) {
      if (value == 0) continue;
      const double ulp = ulp_at(precision, value * scale) / scale;
      const double chance = std::min(1.0, each / ulp);
      flips += chance;
      squares += chance * ulp * ulp;
      rounding += ulp * ulp / 12;
    }
    all += static_cast<double>(tensor.size());
  }
  return {(flips + 4 * std::sqrt(flips) + 4) / all, std::sqrt(squares / rounding)};
}

// Of elements that are far from each other by more than fp32 tells, none is by more than an ulp of
// where they were rounded, at `scale` times themselves; returns which share was.
double flipped(const gpu::Tensors& host, const gpu::Tensors& there, Precision precision,
               double scale) {
  const double whole = length_of(host);
  std::size_t flips = 0;
  std::size_t all = 0;
  for (std::size_t t = 0; t < host.size(); ++t) {
    const double noise = noise_of(host[t], whole);
    for (std::size_t i = 0; i < host[t].size(); ++i) {
      const double off = std::abs(static_cast<double>(host[t][i]) - there[t][i]);
      const double most = std::max(std::abs(host[t][i]), std::abs(there[t][i]));
      EXPECT_LE(off, ulp_at(precision, most * scale) / scale + noise) << t << ", " << i;
      flips += host[t][i] != there[t][i] ? 1 : 0;
    }
    all += host[t].size();
  }
  return static_cast<double>(flips) / static_cast<double>(all);
}

// So that the first run on a card says how far from its bounds it is.
void record(Precision precision, const std::string& what, double value) {
  ::testing::Test::RecordProperty(std::string(to_string(precision)) + "_" + what,
                                  format("%.3g", value));
}

class NarrowFamilies : public ::testing::TestWithParam<Family> {};

// Parameters are the same bits, so the loss is as good as in fp32; of the gradients, as good as in
// fp32 before they are rounded, few flip.
TEST_P(NarrowFamilies, HaveTheHostsGradientsButForFlips) {
  const gpu::SmallProblem problem = gpu::small_problem(GetParam());
  for (const Precision precision : kNarrow) {
    SCOPED_TRACE(to_string(precision));
    const TrainingOptions options = narrow_options(precision, 1);
    const Trained host = train(problem, options, false);
    const Trained there = train(problem, options, true);
    EXPECT_NEAR(there.losses[0], host.losses[0], kFirstStep * host.losses[0]);
    const double share =
        flipped(host.gradients, there.gradients, precision, options.loss_scale.initial);
    const double allowed =
        allowed_flips(host.gradients, precision, options.loss_scale.initial).share;
    record(precision, "flipped", share);
    record(precision, "allowed", allowed);
    EXPECT_LE(share, allowed);
    EXPECT_LT(allowed, 0.4) << "the bound says nothing";
    EXPECT_NEAR(there.test_loss, host.test_loss, 1e-4 * host.test_loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, NarrowFamilies, ::testing::ValuesIn(gpu::families()),
                         [](const auto& info) { return info.param.name; });

class NarrowSteps : public ::testing::TestWithParam<StepCase> {};

// Flips of three steps' gradients, beside the rounding that either training does by itself.
TEST_P(NarrowSteps, LeaveTheHostsParametersButForFlips) {
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[0]);
  for (const Precision precision : kNarrow) {
    SCOPED_TRACE(to_string(precision));
    TrainingOptions options = narrow_options(precision, 3);
    GetParam().change(options);
    const Trained host = train(problem, options, false);
    const Trained there = train(problem, options, true);
    const Trained again = train(problem, options, true);
    EXPECT_EQ(there.parameters, again.parameters);
    gpu::expect_alike(host, there, options.clip, ulp_of_one(precision));
    const double allowed =
        allowed_flips(host.gradients, precision, options.loss_scale.initial).over_rounding;
    options.precision = Precision::kF32;
    options.main_gradients = true;
    const Trained wide = train(problem, options, false);
    const double rounding = distance(wide.parameters, host.parameters);
    EXPECT_GT(rounding, 0);
    const double share = distance(host.parameters, there.parameters) / rounding;
    record(precision, "flips_over_rounding", share);
    record(precision, "allowed", allowed);
    EXPECT_LE(share, allowed);
  }
}

std::vector<StepCase> cases() {
  using O = TrainingOptions;
  return gpu::step_cases({{"sgd", [](O&) {}},
                          {"no_main_gradients", [](O& o) { o.main_gradients = false; }},
                          {"no_main_gradients_accumulate_clip",
                           [](O& o) {
                             o.main_gradients = false;
                             o.accumulate = 4;
                             o.clip = 0.2;
                             o.offload_chunk = 1000;
                           }},
                          {"no_main_gradients_adamw", [](O& o) {
                             gpu::take_adaptive(o, "adamw");
                             o.main_gradients = false;
                             o.offload_chunk = 333;
                           }}});
}

INSTANTIATE_TEST_SUITE_P(Every, NarrowSteps, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// Steps that overflow are left out by the same rule: nothing of them is seen afterwards.
TEST(NarrowTraining, LeavesOutTheStepsThatTheHostLeavesOut) {
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[0]);
  for (const bool sums : {true, false}) {
    TrainingOptions options = narrow_options(Precision::kF16, 6);
    options.main_gradients = sums;
    options.loss_scale = std::move(LossScaleOptions::parse("dynamic")).value();
    options.loss_scale.initial = 0x1p22;
    options.loss_scale.hysteresis = 1;
    const Trained host = train(problem, options, false);
    const Trained there = train(problem, options, true);
    int skipped = 0;
    for (std::size_t i = 0; i < host.reports.size(); ++i) {
      EXPECT_EQ(there.reports[i].skipped, host.reports[i].skipped) << i;
      EXPECT_EQ(there.reports[i].loss_scale, host.reports[i].loss_scale) << i;
      skipped += host.reports[i].skipped ? 1 : 0;
    }
    EXPECT_GT(skipped, 0);
    EXPECT_LT(skipped, 6);
    EXPECT_LE(distance(host.parameters, there.parameters), ulp_of_one(Precision::kF16));
  }
}

std::vector<float> hard_values(std::size_t count) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values{0,        -0.0F,  1,        1.00390625F, 1.01171875F,
                            65519,    65520,  -3e38F,   0x1p-24F,    0x1p-25F,
                            0x1p-26F, 1e-40F, infinity, -infinity};
  const RandomStream draws(11, RandomUse::kTest, 0, kSharedRank, 0, 0);
  while (values.size() < count) {
    const std::uint32_t word = draws.word(values.size());
    const auto exponent = static_cast<int>(word % 60) - 40;
    values.push_back(std::ldexp(static_cast<float>(word), exponent - 16) *
                     (word % 3 == 0 ? -1.0F : 1.0F));
  }
  return values;
}

// The same operands for both: the same bits.
TEST(StoredThere, HaveTheHostsBits) {
  constexpr std::size_t kCount = 3001;
  const std::vector<float> values = hard_values(kCount);
  std::vector<float> more(values.rbegin(), values.rend());
  const gpu::OnDevice values_there = gpu::uploaded(values);
  const gpu::OnDevice more_there = gpu::uploaded(more);
  const gpu::OnDevice out_there(kCount * sizeof(float));
  const auto floats = [](const gpu::OnDevice& memory) {
    return std::span(reinterpret_cast<float*>(memory.bytes().data()), kCount);
  };
  for (const Precision precision : kNarrow) {
    SCOPED_TRACE(to_string(precision));
    auto host = std::move(StoredGradients::create({}, precision, kCount)).value();
    auto there =
        std::move(StoredGradients::create(MemoryArena(kStream), precision, kCount)).value();
    std::vector<float> out(kCount);
    const auto same = [&](const char* what) {
      ASSERT_TRUE(host.read(0, out).ok());
      ASSERT_TRUE(there.read(0, floats(out_there)).ok());
      const auto found = out_there.values<float>();
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_TRUE(found[i] == out[i] || (std::isnan(found[i]) && std::isnan(out[i])))
            << what << ", element " << i << ": " << found[i] << ", the host has " << out[i];
      }
      EXPECT_EQ(there.finite().value(), host.finite().value()) << what;
    };
    host.begin_step(1);
    there.begin_step(1);
    ASSERT_TRUE(host.keep_scaled(values, 0).ok());
    ASSERT_TRUE(there.keep_scaled(floats(values_there), 0).ok());
    same("kept");
    ASSERT_TRUE(host.add_scaled(more, 0).ok());
    ASSERT_TRUE(there.add_scaled(floats(more_there), 0).ok());
    same("added");
    for (StoredGradients* each : {&host, &there}) each->begin_step(1024);
    ASSERT_TRUE(host.keep(values, 0).ok());
    ASSERT_TRUE(there.keep(floats(values_there), 0).ok());
    same("as large as they can be");
    const std::vector<float> small(kCount, 0.37F);
    const gpu::OnDevice small_there = gpu::uploaded(small);
    ASSERT_TRUE(host.keep(small, 0).ok());
    ASSERT_TRUE(there.keep(floats(small_there), 0).ok());
    const double length = host.norm().value();
    EXPECT_NEAR(there.norm().value(), length, 1e-12 * length);
    for (StoredGradients* each : {&host, &there}) each->shorten(length, 0.3 * length);
    same("shortened");
    EXPECT_TRUE(there.finite().value());
    auto kernels = std::move(make_stored_kernels(precision, kStream)).value();
    const gpu::OnDevice rounded = gpu::uploaded(values);
    ASSERT_TRUE(kernels->round(floats(rounded)).ok());
    std::vector<float> wanted = values;
    round_to(precision, wanted);
    EXPECT_THAT(rounded.values<float>(), ElementsAreArray(wanted));
  }
}

}  // namespace
}  // namespace gradwire::narrow_training_test
