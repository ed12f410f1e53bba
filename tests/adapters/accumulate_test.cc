// Several ranks with several micro-batches each: one rank that adds in the same groups has the same
// bits, whatever the stage of sharding.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/modes/model_gradients.h"
#include "base/elements.h"
#include "base/mesh.h"
#include "device/ops.h"
#include "tests/adapters/training_runs.h"
#include "trainer/optimizers/optimizer.h"

namespace gradwire::testing::accumulate_test {
namespace {

// sum / count, as a fold from the first of equal vectors and one multiplication.
Status average(std::span<Flat> of, Flat& mean) {
  const Stream host;
  mean = of[0];
  for (Flat& more : of.subspan(1)) {
    GW_TRY(reduce(ReduceOp::kSum, view_of(std::span<float>(more)), view_of(std::span<float>(mean)),
                  host));
  }
  return scale(view_of(std::span<float>(mean)), 1.0 / static_cast<double>(of.size()), host);
}

// SGD with momentum, by one rank: each replica's micro-batches first, then the replicas.
Result<Flat> trained_alone(const Training& training) {
  const Model<float>& model = *training.model;
  const BatchShares shares{training.ranks, training.accumulate};
  std::vector<std::unique_ptr<ModelGradients>> workers;
  for (int number = 0; number < shares.micro_batches(); ++number) {
    GW_ASSIGN(auto worker,
              ModelGradients::create(
                  model, digits(),
                  {48, number, static_cast<int>(shares.micro_batches()), 3, Shuffle::kEpoch, {}}));
    workers.push_back(std::move(worker));
  }
  OptimizerOptions sgd;
  sgd.momentum = 0.9;
  GW_ASSIGN(const auto optimizer, make_optimizer(sgd, whole_slices(model.parameters())));
  Flat parameters(static_cast<std::size_t>(parameter_elems(model.parameters())));
  init_parameters<float>(model.parameters(), 3, parameters);
  std::vector<Flat> replicas(static_cast<std::size_t>(shares.dp), parameters);
  std::vector<Flat> micro_batches(static_cast<std::size_t>(shares.accumulate), parameters);
  Flat mean;
  for (std::int64_t step = 0; step < training.steps; ++step) {
    for (int d = 0; d < shares.dp; ++d) {
      for (int micro = 0; micro < shares.accumulate; ++micro) {
        auto& worker = *workers[static_cast<std::size_t>(shares.number(d, micro))];
        Flat& gradient = micro_batches[static_cast<std::size_t>(micro)];
        GW_TRY(worker.gradient(parameters, step, gradient).error());
      }
      GW_TRY(average(micro_batches, replicas[static_cast<std::size_t>(d)]));
    }
    GW_TRY(average(replicas, mean));
    GW_TRY(optimizer->step(parameters, mean, training.lr));
  }
  return parameters;
}

class Accumulate : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Accumulate, RanksThatAccumulateAddInGroups) {
  Training training;
  training.ranks = GetParam().first;
  training.accumulate = GetParam().second;
  training.steps = 8;
  const auto alone = trained_alone(training);
  ASSERT_TRUE(alone.has_value()) << alone.error().message();
  for (training.zero = 0; training.zero <= 3; ++training.zero) {
    const Outcome seen = run(training, {});
    ASSERT_TRUE(all_ok(seen)) << training.zero;
    for (const Flat& parameters : seen.parameters) {
      EXPECT_EQ(parameters, alone.value()) << "stage " << training.zero;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, Accumulate,
                         ::testing::Values(std::pair(1, 4), std::pair(4, 1), std::pair(2, 2),
                                           std::pair(2, 3), std::pair(3, 2), std::pair(4, 3)));

}  // namespace
}  // namespace gradwire::testing::accumulate_test
