// Training in 16 bits on a device beside training on the host. What is rounded, and where, is the
// same; what differs before by rounding in fp32 may be rounded to another neighbour, a flip: an
// element then is one ulp of 16 bits off, and few elements are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/gpu/trained.h"
#include "trainer/cuda/make_kernels.h"
#include "trainer/stored_gradients.h"

namespace gradwire {
namespace {

using gpu::distance;
using gpu::Family;
using gpu::kFirstStep;
using gpu::kStream;
using gpu::options_of;
using gpu::train;
using gpu::Trained;
using testing::ElementsAreArray;

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

// Of elements that are far from each other by more than fp32 tells, none is by more than an ulp of
// where they were rounded, at `scale` times themselves; returns which share was.
double flipped(const gpu::Tensors& host, const gpu::Tensors& there, Precision precision,
               double scale) {
  double whole = 0;
  for (const auto& tensor : host) whole = std::hypot(whole, gpu::length(tensor));
  std::size_t flips = 0;
  std::size_t all = 0;
  for (std::size_t t = 0; t < host.size(); ++t) {
    // Sums of terms that cancel differ by the terms' rounding, not by their own.
    const double own = gpu::length(host[t]);
    const double noise = kFirstStep * (own > 1e-3 * whole ? own : whole);
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

class NarrowFamilies : public testing::TestWithParam<Family> {};

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
    EXPECT_LE(share, 0.02);
    EXPECT_NEAR(there.test_loss, host.test_loss, 1e-4 * host.test_loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, NarrowFamilies, testing::ValuesIn(gpu::families()),
                         [](const auto& info) { return info.param.name; });

struct NarrowCase {
  std::string name;
  std::function<void(TrainingOptions&)> change;
};

std::vector<NarrowCase> narrow_cases() {
  using O = TrainingOptions;
  return {{"sgd", [](O&) {}},
          {"adamw",
           [](O& o) {
             o.optimizer.name = "adamw";
             o.optimizer.epsilon = 1e-3;  // so that gradients near 0 do not decide a whole step
             o.optimizer.weight_decay = 0.1;
             o.lr = 0.01;
           }},
          {"accumulate", [](O& o) { o.accumulate = 4; }},
          {"clip", [](O& o) { o.clip = 0.2; }},
          {"clip_workers", [](O& o) { o.clip_worker = 0.3; }},
          {"recompute", [](O& o) { o.recompute = "2"; }},
          {"no_main_gradients", [](O& o) { o.main_gradients = false; }},
          {"no_main_gradients_accumulate_clip",
           [](O& o) {
             o.main_gradients = false;
             o.accumulate = 4;
             o.clip = 0.2;
             o.offload_chunk = 1000;
           }},
          {"no_main_gradients_adamw", [](O& o) {
             o.main_gradients = false;
             o.optimizer.name = "adamw";
             o.optimizer.epsilon = 1e-3;
             o.optimizer.weight_decay = 0.1;
             o.offload_chunk = 333;
             o.lr = 0.01;
           }}};
}

void PrintTo(const NarrowCase& one, std::ostream* out) { *out << one.name; }

class NarrowSteps : public testing::TestWithParam<NarrowCase> {};

// A flip is half an ulp of 16 bits at most beside what was rounded, as long as flips are no more
// than the rounding that either training does by itself.
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
    options.precision = Precision::kF32;
    options.main_gradients = true;
    const Trained wide = train(problem, options, false);
    const double rounding = distance(wide.parameters, host.parameters);
    EXPECT_GT(rounding, 0);
    EXPECT_LE(distance(host.parameters, there.parameters), 0.25 * rounding);
    for (std::size_t i = 0; i < host.reports.size(); ++i) {
      EXPECT_NEAR(there.losses[i], host.losses[i], ulp_of_one(precision) * host.losses[i]);
      ASSERT_EQ(there.reports[i].gradient_norm.has_value(), options.clip > 0);
      if (options.clip == 0) continue;
      const double norm = *host.reports[i].gradient_norm;
      EXPECT_NEAR(*there.reports[i].gradient_norm, norm, ulp_of_one(precision) * norm);
      EXPECT_GT(norm, options.clip) << "nothing is clipped";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, NarrowSteps, testing::ValuesIn(narrow_cases()),
                         [](const auto& info) { return info.param.name; });

// Steps that overflow are left out by the same rule: nothing of them is seen afterwards.
TEST(NarrowTraining, LeavesOutTheStepsThatTheHostLeavesOut) {
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[0]);
  for (const bool sums : {true, false}) {
    TrainingOptions options = narrow_options(Precision::kF16, 6);
    options.main_gradients = sums;
    options.loss_scale = std::move(LossScaleOptions::parse("dynamic")).value();
    options.loss_scale.initial = 0x1p22;
    options.loss_scale.patience = 1;
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
}  // namespace gradwire
