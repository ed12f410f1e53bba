// A training on a device or on the host, and how far apart two of them are: the length of tensors'
// difference over the length of the host's; what is as good as 0 beside the whole gradient is
// measured by the whole.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/on_device.h"
#include "tests/gpu/small_problems.h"
#include "tests/trainer/test_strategies.h"

namespace gradwire::gpu {

using Tensors = std::vector<std::vector<float>>;

inline constexpr double kFirstStep = 1e-5;  // of loss and gradients after one step in fp32

inline double length(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

// The largest distance of two tensors of a name.
inline double distance(const Tensors& host, const Tensors& there) {
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

// Keeps the gradients that it is given, without their scale.
class KeptGradients final : public OwnStrategy {
 public:
  Status set_gradient_scale(double scale) override {
    scale_ = static_cast<float>(scale);
    return {};
  }
  Status on_gradient(int, TensorView grad, const Stream& stream) override {
    EXPECT_EQ(stream.device.space, grad.device().space);
    given_.push_back({"", grad});
    return {};
  }
  Status finish(const Stream&) override {
    last = contents(given_);
    for (auto& tensor : last) {
      for (float& value : tensor) value /= scale_;
    }
    given_.clear();
    return {};
  }
  Tensors last;

 private:
  float scale_ = 1;
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
  MemoryLink link;  // what was copied
  MemoryUse device;
  MemoryUse host;
};

inline Trained train(const SmallProblem& problem, TrainingOptions options, bool there) {
  options.places.link = std::make_shared<MemoryLink>();
  if (there) options.places.device = MemoryArena(kStream);
  auto made = Trainer::create(problem.model, problem.data, options);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  if (!made.has_value()) return {};
  Trainer& trainer = made.value();
  Trained trained;
  KeptGradients strategy;
  const auto accuracy = trainer.run(strategy, [&](const StepReport& report) {
    trained.losses.push_back(report.loss);
    trained.reports.push_back(report);
    return Status();
  });
  EXPECT_TRUE(accuracy.has_value()) << accuracy.error().message();
  if (accuracy.has_value()) trained.accuracy = accuracy.value();
  trained.test_loss = trainer.test_loss();
  trained.gradients = strategy.last;
  trained.parameters = contents(trainer.parameters());
  trained.buffers = contents(trainer.buffers());
  std::vector<NamedTensor> state = trainer.state();
  std::erase_if(state,
                [](const NamedTensor& named) { return named.tensor.dtype() != DType::kF32; });
  trained.state = contents(state);
  trained.link = *options.places.link;
  trained.device = options.places.device.use();
  trained.host = options.places.host.use();
  return trained;
}

inline TrainingOptions options_of(std::int64_t steps) {
  TrainingOptions options;
  options.batch = 8;
  options.steps = steps;
  options.lr = 0.05;
  options.seed = 3;
  return options;
}

}  // namespace gradwire::gpu
