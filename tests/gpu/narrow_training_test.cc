// Training in 16 bits on a device beside training on the host. What is rounded, and where, is the
// same; what differs before by rounding in fp32 may be rounded to another neighbour, a flip: an
// element then is one ulp of 16 bits off, and few elements are.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/gpu/step_cases.h"
#include "trainer/cuda/make_kernels.h"
#include "trainer/step/step_gradients.h"

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

std::span<float> floats(const gpu::OnDevice& memory) {
  return {reinterpret_cast<float*>(memory.bytes().data()), memory.bytes().size() / sizeof(float)};
}

// Numbers in 16 bits on the host and on a device, and steps' gradients of each.
class StoredThere : public ::testing::TestWithParam<Precision> {
 protected:
  static constexpr std::size_t kCount = 3001;

  StoredThere()
      : values_(hard_values(kCount)),
        reversed_(values_.rbegin(), values_.rend()),
        host_(std::move(StepGradients::create({}, parts(stored_.data(), {}))).value()),
        there_(std::move(StepGradients::create(MemoryArena(kStream),
                                               parts(halves().data(), kStream.device)))
                   .value()),
        kernels_(std::move(make_stored_kernels(GetParam(), kStream)).value()) {}

  static std::vector<TensorView> parts(std::uint16_t* first, Device device) {
    return {
        {reinterpret_cast<std::byte*>(first), Shape::vector(kCount), dtype_of(GetParam()), device}};
  }
  std::span<std::uint16_t> halves() const {
    return {reinterpret_cast<std::uint16_t*>(stored_there_.bytes().data()), kCount};
  }
  void keep(const std::vector<float>& values) {
    const gpu::OnDevice values_there = gpu::uploaded(values);
    store(GetParam(), values, stored_);
    ASSERT_TRUE(store(GetParam(), floats(values_there), halves(), kStream).ok());
  }
  static void expect_same(const std::vector<float>& there, const std::vector<float>& host) {
    for (std::size_t i = 0; i < host.size(); ++i) {
      ASSERT_TRUE(there[i] == host[i] || (std::isnan(there[i]) && std::isnan(host[i])))
          << "element " << i << ": " << there[i] << ", the host has " << host[i];
    }
  }
  void expect_same() const {
    std::vector<float> out(kCount);
    const gpu::OnDevice out_there(kCount * sizeof(float));
    ASSERT_TRUE(host_.read(0, out).ok());
    ASSERT_TRUE(there_.read(0, floats(out_there)).ok());
    expect_same(out_there.values<float>(), out);
    EXPECT_EQ(there_.finite().value(), host_.finite().value());
  }

  const std::vector<float> values_;
  const std::vector<float> reversed_;
  std::vector<std::uint16_t> stored_ = std::vector<std::uint16_t>(kCount);
  const gpu::OnDevice stored_there_{kCount * sizeof(std::uint16_t)};
  StepGradients host_;
  StepGradients there_;
  std::unique_ptr<StoredKernels> kernels_;
};

INSTANTIATE_TEST_SUITE_P(Narrow, StoredThere, ::testing::ValuesIn(kNarrow),
                         [](const auto& info) { return std::string(to_string(info.param)); });

// The same operands for both: the same bits.
TEST_P(StoredThere, SumsHaveTheHostsBits) {
  keep(values_);
  expect_same();
  std::vector<float> more = reversed_;
  round_to(GetParam(), more);
  std::vector<float> wide(kCount);
  load(GetParam(), stored_, wide);
  for (std::size_t i = 0; i < kCount; ++i) wide[i] += more[i];
  store(GetParam(), wide, stored_);
  const gpu::OnDevice reversed_there = gpu::uploaded(reversed_);
  ASSERT_TRUE(kernels_->add(floats(reversed_there), halves()).ok());
  expect_same();
  // fp32 sums of what is stored.
  const gpu::OnDevice both_there = gpu::uploaded(more);
  add(GetParam(), stored_, more);
  ASSERT_TRUE(kernels_->add_to(halves(), floats(both_there)).ok());
  expect_same(both_there.values<float>(), more);
}

TEST_P(StoredThere, AreReadWithoutTheScaleAndShortened) {
  keep(std::vector<float>(kCount, 0.37F));
  for (StepGradients* each : {&host_, &there_}) each->begin_step(1024);
  expect_same();
  const double squares = host_.squares().value()[0];
  EXPECT_NEAR(there_.squares().value()[0], squares, 1e-12 * squares);
  const double length = std::sqrt(squares);
  for (StepGradients* each : {&host_, &there_}) {
    ASSERT_TRUE(each->shorten(length, 0.3 * length).ok());
  }
  expect_same();
  EXPECT_TRUE(there_.finite().value());
}

// A few at a time, as an offloaded step asks for them.
TEST_P(StoredThere, ComeToTheHostAsTheyAreReadThere) {
  keep(std::vector<float>(kCount, -0.37F));
  const MemoryArena host;
  auto made = StepGradients::create(MemoryArena(kStream), parts(halves().data(), kStream.device),
                                    {&host, 100});
  ASSERT_TRUE(made.has_value());
  for (StepGradients* each : {&host_, &made.value()}) each->begin_step(8);
  std::vector<float> wanted(kCount);
  std::vector<float> come(kCount);
  ASSERT_TRUE(host_.read(0, wanted).ok());
  for (std::size_t at = 0; at < kCount; at += 100) {
    const std::size_t count = std::min<std::size_t>(100, kCount - at);
    ASSERT_TRUE(made.value().read_to_host(at, std::span(come).subspan(at, count)).ok());
  }
  EXPECT_EQ(come, wanted);
}

TEST_P(StoredThere, RoundingHasTheHostsBits) {
  const gpu::OnDevice rounded = gpu::uploaded(values_);
  ASSERT_TRUE(kernels_->round(floats(rounded)).ok());
  std::vector<float> wanted = values_;
  round_to(GetParam(), wanted);
  expect_same(rounded.values<float>(), wanted);
}

}  // namespace
}  // namespace gradwire::narrow_training_test
