// Training on a device beside training on the host. How far apart two tensors are is the length of
// their difference over the length of the host's; what is as good as 0 beside the whole gradient is
// measured by the whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/gpu/on_device.h"
#include "tests/gpu/small_problems.h"

namespace gradwire {
namespace {

using gpu::contents;
using gpu::Family;
using gpu::kStream;
using testing::HasSubstr;

using Tensors = std::vector<std::vector<float>>;

constexpr double kFirstStep = 1e-5;  // of loss and gradients after one step

double length(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

// The largest distance of two tensors of a name.
double distance(const Tensors& host, const Tensors& there) {
  EXPECT_EQ(host.size(), there.size());
  double whole = 0;
  for (const auto& tensor : host) whole = std::hypot(whole, length(tensor));
  double most = 0;
  for (std::size_t t = 0; t < host.size(); ++t) {
    std::vector<float> off(host[t].size());
    for (std::size_t i = 0; i < off.size(); ++i) off[i] = host[t][i] - there[t][i];
    const double own = length(host[t]);
    most = std::max(most, length(off) / (own > 1e-3 * whole ? own : whole));
  }
  return most;
}

// Keeps the gradients that it is given.
class KeptGradients final : public GradientHook {
 public:
  Status on_gradient(int, TensorView grad, const Stream& stream) override {
    EXPECT_EQ(stream.device.space, grad.device().space);
    given_.push_back({"", grad});
    return {};
  }
  Status before_optimizer_step(const Stream&) override {
    last = contents(given_);
    given_.clear();
    return {};
  }
  Tensors last;

 private:
  std::vector<NamedTensor> given_;
};

struct Trained {
  std::vector<double> losses;
  std::vector<StepReport> reports;
  double accuracy = 0;
  double test_loss = 0;
  Tensors gradients;  // of the last step
  Tensors parameters;
  Tensors buffers;
  Tensors state;
};

Trained train(const gpu::SmallProblem& problem, TrainingOptions options, bool there) {
  if (there) options.places.device = MemoryArena(kStream);
  auto made = Trainer::create(problem.model, problem.data, options);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  if (!made.has_value()) return {};
  Trainer& trainer = made.value();
  Trained trained;
  KeptGradients hook;
  const auto accuracy = trainer.run(hook, [&](const StepReport& report) {
    trained.losses.push_back(report.loss);
    trained.reports.push_back(report);
    return Status();
  });
  EXPECT_TRUE(accuracy.has_value()) << accuracy.error().message();
  if (accuracy.has_value()) trained.accuracy = accuracy.value();
  trained.test_loss = trainer.test_loss();
  trained.gradients = hook.last;
  trained.parameters = contents(trainer.parameters());
  trained.buffers = contents(trainer.buffers());
  std::vector<NamedTensor> state = trainer.state();
  std::erase_if(state,
                [](const NamedTensor& named) { return named.tensor.dtype() != DType::kF32; });
  trained.state = contents(state);
  return trained;
}

TrainingOptions options_of(std::int64_t steps) {
  TrainingOptions options;
  options.batch = 8;
  options.steps = steps;
  options.lr = 0.05;
  options.seed = 3;
  return options;
}

class Families : public testing::TestWithParam<Family> {};

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

INSTANTIATE_TEST_SUITE_P(Every, Families, testing::ValuesIn(gpu::families()),
                         [](const auto& info) { return info.param.name; });

// What a step does beside layers.
struct StepCase {
  std::string name;
  std::function<void(TrainingOptions&)> change;
};

std::vector<StepCase> step_cases() {
  using O = TrainingOptions;
  return {
      {"sgd_without_momentum", [](O& o) { o.momentum = 0; }},
      {"sgd_with_decay", [](O& o) { o.optimizer.weight_decay = 0.1; }},
      {"nesterov", [](O& o) { o.optimizer.name = "nesterov"; }},
      {"nesterov_with_decay",
       [](O& o) {
         o.optimizer.name = "nesterov";
         o.optimizer.weight_decay = 0.1;
       }},
      {"adamw",
       [](O& o) {
         o.optimizer.name = "adamw";
         o.optimizer.epsilon = 1e-3;  // so that gradients near 0 do not decide a whole step
         o.optimizer.weight_decay = 0.1;
         o.lr = 0.01;
       }},
      {"lamb",
       [](O& o) {
         o.optimizer.name = "lamb";
         o.optimizer.epsilon = 1e-3;
         o.optimizer.weight_decay = 0.1;
         o.lr = 0.01;
       }},
      {"accumulate", [](O& o) { o.accumulate = 4; }},
      {"momentum_at_workers",
       [](O& o) {
         o.accumulate = 2;
         o.momentum_at = MomentumAt::kWorker;
       }},
      {"clip", [](O& o) { o.clip = 0.2; }},
      {"clip_workers",
       [](O& o) {
         o.accumulate = 2;
         o.clip_worker = 0.3;
       }},
      {"loss_scale", [](O& o) { o.loss_scale.initial = 1024; }},
      {"recompute", [](O& o) { o.recompute = "2"; }},
  };
}

void PrintTo(const StepCase& one, std::ostream* out) { *out << one.name; }

class Steps : public testing::TestWithParam<StepCase> {};

TEST_P(Steps, LeaveTheHostsParametersAndState) {
  const gpu::SmallProblem problem = gpu::small_problem(gpu::families()[0]);
  TrainingOptions options = options_of(3);
  GetParam().change(options);
  const Trained host = train(problem, options, false);
  const Trained there = train(problem, options, true);
  EXPECT_LE(distance(host.parameters, there.parameters), kFirstStep);
  EXPECT_LE(distance(host.state, there.state), 1e-4);
  for (std::size_t i = 0; i < host.reports.size(); ++i) {
    EXPECT_NEAR(there.losses[i], host.losses[i], kFirstStep * host.losses[i]);
    ASSERT_EQ(there.reports[i].gradient_norm.has_value(), options.clip > 0);
    if (options.clip == 0) continue;
    const double norm = *host.reports[i].gradient_norm;
    EXPECT_NEAR(*there.reports[i].gradient_norm, norm, kFirstStep * norm);
    EXPECT_GT(norm, options.clip) << "nothing is clipped";
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Steps, testing::ValuesIn(step_cases()),
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
  options.loss_scale.patience = 1;
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
    const auto made = Trainer::create(problem.model, problem.data, options);
    EXPECT_FALSE(made.has_value());
    return made.has_value() ? std::string() : std::string(made.error().message());
  };
  using O = TrainingOptions;
  EXPECT_THAT(refused([](O& o) { o.precision = Precision::kBF16; }),
              HasSubstr("with precision bf16 is not served yet (wanted: fp32)"));
  EXPECT_THAT(refused([](O& o) { o.offload = Offload::kOptimizer; }),
              HasSubstr("with offload optimizer is not served yet (wanted: none)"));
  EXPECT_THAT(refused([](O& o) { o.gated_parameters = true; }), HasSubstr("wanted: whole ones"));
  EXPECT_THAT(refused([](O& o) { o.optimizer.name = "hook"; }),
              HasSubstr("wanted: sgd, nesterov, adamw or lamb"));
}

}  // namespace
}  // namespace gradwire
