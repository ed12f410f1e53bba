// Training on a device beside training on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/gpu/step_cases.h"
#include "tests/support/fails.h"

namespace gradwire::training_test {
namespace {

using gpu::contents;
using gpu::distance;
using gpu::Family;
using gpu::kFirstStep;
using gpu::kStream;
using gpu::options_of;
using gpu::StepCase;
using gpu::train;
using gpu::Trained;

class Families : public ::testing::TestWithParam<Family> {};

TEST_P(Families, HaveTheHostsLossAndGradientsAfterOneStep) {
  const gpu::SmallProblem problem = gpu::small_problem(GetParam());
  const Trained host = train(problem, options_of(1), false);
  const Trained there = train(problem, options_of(1), true);
  EXPECT_NEAR(there.losses[0], host.losses[0], kFirstStep * host.losses[0]);
  EXPECT_LE(distance(host.gradients, there.gradients), kFirstStep);
  EXPECT_LE(distance(host.parameters, there.parameters), kFirstStep);
  EXPECT_LE(distance(host.buffers, there.buffers), kFirstStep);
  EXPECT_NEAR(there.test_loss, host.test_loss, 1e-4 * host.test_loss);
}

TEST_P(Families, TrainToTheSameLossAndTwiceToTheSameBits) {
  const gpu::SmallProblem problem = gpu::small_problem(GetParam());
  const Trained host = train(problem, options_of(GetParam().steps), false);
  const Trained there = train(problem, options_of(GetParam().steps), true);
  const Trained again = train(problem, options_of(GetParam().steps), true);
  EXPECT_NEAR(there.losses.back(), host.losses.back(), 1e-3 * host.losses.front());
  EXPECT_EQ(there.losses, again.losses);
  EXPECT_EQ(there.parameters, again.parameters);
  EXPECT_EQ(there.buffers, again.buffers);
}

INSTANTIATE_TEST_SUITE_P(Every, Families, ::testing::ValuesIn(gpu::families()),
                         [](const auto& info) { return info.param.name; });

class Steps : public ::testing::TestWithParam<StepCase> {};

TEST_P(Steps, LeaveTheHostsParametersAndState) {
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[0]);
  TrainingOptions options = options_of(3);
  GetParam().change(options);
  const Trained host = train(problem, options, false);
  const Trained there = train(problem, options, true);
  EXPECT_LE(distance(host.parameters, there.parameters), kFirstStep);
  EXPECT_LE(distance(host.state, there.state), 1e-4);
  gpu::expect_alike(host, there, options.clip, kFirstStep);
}

std::vector<StepCase> cases() {
  using O = TrainingOptions;
  return gpu::step_cases({
      {"sgd_without_momentum", [](O& o) { o.momentum = 0; }},
      {"sgd_with_decay", [](O& o) { o.optimizer.weight_decay = 0.1; }},
      {"nesterov", [](O& o) { o.optimizer.name = "nesterov"; }},
      {"nesterov_with_decay",
       [](O& o) {
         o.optimizer.name = "nesterov";
         o.optimizer.weight_decay = 0.1;
       }},
      {"lamb", [](O& o) { gpu::take_adaptive(o, "lamb"); }},
      {"momentum_at_workers",
       [](O& o) {
         o.accumulate = 2;
         o.momentum_at = MomentumAt::kWorker;
       }},
      {"loss_scale", [](O& o) { o.loss_scale.initial = 1024; }},
  });
}

INSTANTIATE_TEST_SUITE_P(Every, Steps, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// The same gradient for both: the steps themselves, in the host's bits.
TEST(OptimizersThere, HaveTheHostsBits) {
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[0]);
  const SliceTable slices = whole_slices(problem.model.parameters());
  const auto elems = static_cast<std::size_t>(slice_elems(slices));
  for (const std::string name : {"sgd", "nesterov", "adamw"}) {
    OptimizerOptions options;
    options.name = name;
    options.weight_decay = 0.1;
    auto host = make_optimizer(options, slices);
    auto there = make_optimizer(options, slices, nullptr, MemoryArena(kStream));
    ASSERT_TRUE(host.has_value() && there.has_value());
    std::vector<float> x(elems);
    init_parameters<float>(problem.model.parameters(), 1, x);
    const gpu::OnDevice x_there = gpu::uploaded(x);
    for (int step = 0; step < 3; ++step) {
      std::vector<float> g(elems);
      init_parameters<float>(problem.model.parameters(), 7 + step, g);
      const gpu::OnDevice g_there = gpu::uploaded(g);
      ASSERT_TRUE(host.value()->step(x, g, 0.1).ok());
      const Status done =
          there.value()->step({reinterpret_cast<float*>(x_there.bytes().data()), elems},
                              {reinterpret_cast<const float*>(g_there.bytes().data()), elems}, 0.1);
      ASSERT_TRUE(done.ok()) << done.message();
      EXPECT_EQ(x_there.values<float>(), x) << name << ", step " << step;
    }
    EXPECT_EQ(contents(host.value()->state()), contents(there.value()->state())) << name;
  }
}

// A step whose gradients overflow leaves nothing behind.
TEST(LossScaleThere, LeavesOutStepsThatOverflow) {
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[0]);
  TrainingOptions options = options_of(2);
  options.loss_scale = std::move(LossScaleOptions::parse("dynamic")).value();
  options.loss_scale.initial = 0x1p130;  // more than a float takes
  options.loss_scale.hysteresis = 1;
  const Trained there = train(problem, options, true);
  ASSERT_EQ(there.reports.size(), 2u);
  EXPECT_TRUE(there.reports[0].skipped);
  EXPECT_EQ(*there.reports[1].loss_scale, 0x1p129);
}

// What is not served says so, and what to take.
TEST(TrainingThere, RefusesByName) {
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[0]);
  const auto refused = [&](const std::function<void(TrainingOptions&)>& change) {
    TrainingOptions options = options_of(1);
    options.places.device = MemoryArena(kStream);
    change(options);
    return Trainer::create(problem.model, problem.data, options).error();
  };
  using O = TrainingOptions;
  EXPECT_THAT(refused([](O& o) {
                o.offload = Offload::kOptimizer;
                o.precision = Precision::kBF16;
                o.main_gradients = false;
              }),
              fails(Code::kUnsupported, "offload optimizer", "main gradients"));
}

}  // namespace
}  // namespace gradwire::training_test
