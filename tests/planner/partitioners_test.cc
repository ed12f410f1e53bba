// Partitioners against a search over everything, by ==.
#include "planner/search/partitioners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/planner/even_cluster.h"
#include "tests/planner/stage_costs.h"

namespace gradwire::partitioners_test {
namespace {

using Stages = std::vector<PlacedStage>;

// The best of all partitions.
std::int64_t best_of(const StageCost& cost,
                     const std::function<std::int64_t(const StageCost&, const Stages&)>& ticks) {
  std::int64_t best = kNoTicks;
  each_partition(cost.layers(), cost.devices(),
                 [&](const Stages& stages) { best = std::min(best, ticks(cost, stages)); });
  return best;
}

std::int64_t pipedream_ticks(const StageCost& cost, const Stages& stages) {
  std::int64_t slowest = 0;
  for (const PlacedStage& stage : stages) {
    if (!pipedream_fits(cost, stage, stages.back().end_device)) return kNoTicks;
    slowest = std::max({slowest, pipedream_stage_ticks(cost, stage),
                        pipedream_cut_ticks(cost, stage.first_layer, stage.first_device)});
  }
  return slowest;
}

TEST(Partitioners, Pl3PipedreamIsTheBestOfEverything) {
  for (const bool is_chain : {true, false}) {
    expect_best_of_everything(
        is_chain, 1,
        {.partition = partition_pipedream,
         .best = [](const StageCost& cost) { return best_of(cost, pipedream_ticks); },
         .ticks = pipedream_ticks});
  }
}

TEST(Partitioners, Pl3PipedreamsStagesCostWhatTheirProgramSays) {
  const Cluster cluster = even_cluster(4, 2);
  OperatorGraph graph{.name = "one", .samples = 8};
  graph.operators = {{.name = "a",
                      .forward_macs = 8000,
                      .backward_macs = 16000,
                      .parameter_bytes = 600,
                      .channels = 5},
                     {.name = "b", .forward_macs = 80, .channels = 1, .inputs = {0}}};
  for (const double ratio : kGradientRatios) {
    const auto cost =
        StageCost::make(graph, cluster, {.activation_ratio = 0.5, .gradient_ratio = ratio}, 8)
            .value();
    for (int m = 1; m <= 4; ++m) {
      const double computed = (8000.0 + 16000.0) / 8;
      const double sent = ratio * 4 * (m - 1) * 600 * 2 / m;
      EXPECT_NEAR(static_cast<double>(pipedream_stage_ticks(cost, {0, 1, 0, m})),
                  (computed + sent) / m, 2.0);  // quotients are rounded up
    }
    EXPECT_EQ(pipedream_cut_ticks(cost, 1, 1), 2 * 5 * 4 * 2 / 2);
    for (int m = 2; m <= 4; ++m) {
      const double ring = 2.0 * (m - 1) / m * 600 * ratio * 2;
      EXPECT_NEAR(static_cast<double>(cost.reduce({0, 1, 0, m})), ring, 1.0) << m << " replicas";
    }
  }
}

// L by the equations: stages and, between them, transfers; the pivot is the one that gives most.
std::int64_t latency_by_the_equations(const StageCost& cost, const Stages& stages) {
  std::vector<std::int64_t> f;
  std::vector<std::int64_t> b;
  std::vector<std::int64_t> ar;
  for (const PlacedStage& stage : stages) {
    if (!f.empty()) {
      f.push_back(cost.transfer(stage.first_layer, stage.first_device));
      b.push_back(f.back());
      ar.push_back(0);
    }
    f.push_back(cost.forward(stage));
    b.push_back(cost.backward(stage));
    ar.push_back(cost.reduce(stage));
  }
  const auto sum = [](const std::vector<std::int64_t>& of, std::size_t begin, std::size_t end) {
    std::int64_t all = 0;
    for (std::size_t i = begin; i < end; ++i) all += of[i];
    return all;
  };
  std::int64_t most = 0;
  for (std::size_t q = 0; q < f.size(); ++q) {
    std::int64_t ending = -kNoTicks;
    for (std::size_t s = 0; s < f.size(); ++s) {
      ending = std::max(ending, s <= q ? ar[s] + sum(b, s, q + 1) : ar[s] - sum(b, q + 1, s));
    }
    most = std::max(most, sum(f, 0, q + 1) + (cost.micro_batches() - 1) * (f[q] + b[q]) + ending);
  }
  return most;
}

// Stages keep as many micro-batches as there are stages from them on, at most all.
std::int64_t dapple_latency(const StageCost& cost, const Stages& stages) {
  int left = static_cast<int>(stages.size());
  for (const PlacedStage& stage : stages) {
    if (!cost.fits(stage, std::min(left--, cost.micro_batches()))) return kNoTicks;
  }
  return latency_by_the_equations(cost, stages);
}

TEST(Partitioners, Pl3DappleIsTheBestOfEverything) {
  for (const bool is_chain : {true, false}) {
    expect_best_of_everything(
        is_chain, 1,
        {.partition = partition_dapple,
         .best = [](const StageCost& cost) { return best_of(cost, dapple_latency); },
         .ticks =
             [](const StageCost& cost, const Stages& stages) {
               return dapple_fits(cost, stages) ? dapple_ticks(cost, stages) : kNoTicks;
             }});
  }
}

TEST(Partitioners, Pl3DapplesLatencyIsABoundOfTheSimulatedStep) {
  // Without transfers: the simulator has ports for both directions, their stages of transfers have
  // one. Equal stages take exactly as long.
  std::mt19937 random(3);
  const Cluster cluster = even_cluster(8, 1e-6);
  for (int trial = 0; trial < 30; ++trial) {
    OperatorGraph graph = random_layers(random, 4);
    const bool even = trial % 3 == 0;
    for (GraphOperator& one : graph.operators) {
      one.parameter_bytes = even ? 0 : one.parameter_bytes;
      if (even) one.forward_macs = 3200;
      if (even) one.backward_macs = 6400;
    }
    const auto cost = StageCost::make(graph, cluster, {.activation_ratio = 1e-9}, 16).value();
    const std::vector<PlacedStage> stages{{0, 1, 0, 2}, {1, 2, 2, 4}, {2, 3, 4, 6}, {3, 4, 6, 8}};
    const std::int64_t simulated = simulate_stages(cost, stages).value();
    // A transfer of a nanosecond is rounded up to one.
    const std::int64_t transfers = 3 * 2 * (16 + 4);
    EXPECT_LE(dapple_ticks(cost, stages), simulated + transfers);
    if (even) {
      EXPECT_LE(simulated, dapple_ticks(cost, stages) + transfers);
    }
  }
}

}  // namespace
}  // namespace gradwire::partitioners_test
