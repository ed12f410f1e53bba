// A real model on real data, small enough for seconds: what modes are compared on with the trainer.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "adapters/trainer/modes/model_gradients.h"
#include "base/elements.h"
#include "tests/trainer/training_problems.h"
#include "trainer/models.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::testing {

inline constexpr std::int64_t kBatch = 48;
inline constexpr std::uint64_t kSeed = 3;

inline std::vector<float> mlp_start() {
  std::vector<float> start(static_cast<std::size_t>(parameter_elems(mlp().parameters())));
  init_parameters<float>(mlp().parameters(), kSeed, start);
  return start;
}

inline std::unique_ptr<ModelGradients> share(int worker, int workers) {
  auto made = ModelGradients::create(mlp(), digits(), {kBatch, worker, workers, kSeed});
  EXPECT_TRUE(made.has_value());
  return std::move(made).value();
}

// One process that accumulates as many micro-batches as there are workers: the parameters after
// `steps` steps.
inline std::vector<float> accumulated(int workers, std::int64_t steps, double lr, double momentum,
                                      MomentumAt where = MomentumAt::kServer) {
  TrainingOptions options;
  options.batch = kBatch;
  options.accumulate = workers;
  options.steps = steps;
  options.lr = lr;
  options.momentum = momentum;
  options.momentum_at = where;
  options.seed = kSeed;
  SingleProcess alone;
  auto trainer = Trainer::create(mlp(), digits(), options);
  EXPECT_TRUE(trainer.has_value());
  EXPECT_TRUE(trainer.value().run(alone, [](const StepReport&) { return Status(); }).has_value());
  std::vector<float> params;
  for (const NamedTensor& named : trainer.value().parameters()) {
    const auto values = elements<float>(ConstTensorView(named.tensor));
    params.insert(params.end(), values.begin(), values.end());
  }
  return params;
}

}  // namespace gradwire::testing
