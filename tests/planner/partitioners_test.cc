// Partitioners against a search over everything, by ==.
#include "planner/search/partitioners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "tests/planner/even_cluster.h"
#include "tests/support/fails.h"

namespace gradwire::partitioners_test {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

// A chain of random layers, some with many parameters, some with large outputs.
OperatorGraph random_chain(std::mt19937& random, int layers) {
  const auto below = [&random](int end) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(end));
  };
  OperatorGraph graph{.name = "chain", .samples = 32};
  for (int layer = 0; layer < layers; ++layer) {
    GraphOperator one{.name = std::to_string(layer)};
    one.forward_macs = 100 + below(5000);
    one.backward_macs = 2 * one.forward_macs;
    one.parameter_bytes = below(3) * below(3000);
    one.channels = 4 + below(20);
    one.splits_channels = true;
    if (layer > 0) {
      one.inputs = {layer - 1};
      if (below(3) == 0) {
        one.channels = graph.operators.back().channels;
        one.reads_all_channels = false;
      }
    }
    graph.operators.push_back(std::move(one));
  }
  return graph;
}

// Every partition into consecutive stages on consecutive devices, from the first.
void each_partition(int layers, int devices,
                    const std::function<void(const std::vector<PlacedStage>&)>& visit) {
  std::vector<PlacedStage> stages;
  const std::function<void(int, int)> extend = [&](int layer, int device) {
    if (layer == layers) {
      visit(stages);
      return;
    }
    for (int end = layer + 1; end <= layers; ++end) {
      for (int next = device + 1; next <= devices; ++next) {
        stages.push_back({layer, end, device, next});
        extend(end, next);
        stages.pop_back();
      }
    }
  };
  extend(0, 0);
}

std::vector<Cluster> clusters() {
  std::vector<Cluster> all;
  for (const double byte_ticks : {0.05, 1.0, 8.0}) all.push_back(even_cluster(4, byte_ticks, 10));
  all.push_back(uneven_cluster(2, 0.5));
  // Little memory: some stages do not fit.
  all.push_back(even_cluster(4, 1, 10));
  all.back().types[0].memory_bytes = 10'000;
  return all;
}

constexpr double kRatios[] = {1, 0.25, 0.01};  // of gradients

// Calls with every cost: chains of 1 to 8 layers, clusters of 4 devices, gradient ratios.
void each_cost(int micro_batches, int most_layers,
               const std::function<void(const StageCost&)>& visit) {
  std::mt19937 random(11);
  int number = 0;
  for (const Cluster& cluster : clusters()) {
    for (const double ratio : kRatios) {
      for (int trial = 0; trial < 4; ++trial) {
        const OperatorGraph graph = random_chain(random, 1 + number++ % most_layers);
        const CostOptions options{.activation_ratio = trial % 2 == 0 ? 1 : 0.5,
                                  .gradient_ratio = ratio};
        visit(StageCost::make(graph, cluster, options, micro_batches).value());
      }
    }
  }
}

// Of the best of everything and of a partitioner's answer, which may both be nothing.
void expect_equal(std::int64_t best, const Result<StagePartition>& found) {
  if (best == kNone) {
    EXPECT_THAT(found.error(), fails(Code::kInvalidArgument, "fits"));
    return;
  }
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found.value().ticks, best);
}

std::int64_t pipedream_ticks(const StageCost& cost, const std::vector<PlacedStage>& stages) {
  std::int64_t slowest = 0;
  for (const PlacedStage& stage : stages) {
    slowest = std::max({slowest, pipedream_stage_ticks(cost, stage),
                        pipedream_cut_ticks(cost, stage.first_layer, stage.first_device)});
  }
  return slowest;
}

TEST(Partitioners, Pl3PipedreamIsTheBestOfEverything) {
  int refused = 0;
  each_cost(8, 8, [&](const StageCost& cost) {
    std::int64_t best = kNone;
    each_partition(cost.layers(), cost.devices(), [&](const std::vector<PlacedStage>& stages) {
      const int devices = stages.back().end_device;
      for (const PlacedStage& stage : stages) {
        if (!pipedream_fits(cost, stage, devices)) return;
      }
      best = std::min(best, pipedream_ticks(cost, stages));
    });
    const auto found = partition_pipedream(cost);
    expect_equal(best, found);
    refused += best == kNone ? 1 : 0;
    if (best != kNone) {
      EXPECT_EQ(pipedream_ticks(cost, found.value().stages), best);
    }
  });
  EXPECT_GT(refused, 0);
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
  for (const double ratio : kRatios) {
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
  }
}

TEST(Partitioners, Pl3DappleIsTheBestOfEverything) {
  int refused = 0;
  each_cost(8, 8, [&](const StageCost& cost) {
    std::int64_t best = kNone;
    each_partition(cost.layers(), cost.devices(), [&](const std::vector<PlacedStage>& stages) {
      if (dapple_fits(cost, stages)) best = std::min(best, dapple_ticks(cost, stages));
    });
    const auto found = partition_dapple(cost);
    expect_equal(best, found);
    refused += best == kNone ? 1 : 0;
    if (best != kNone) {
      EXPECT_EQ(dapple_ticks(cost, found.value().stages), best);
    }
  });
  EXPECT_GT(refused, 0);
}

TEST(Partitioners, Pl3DapplesLatencyIsABoundOfTheSimulatedStep) {
  // Without transfers: the simulator has ports for both directions, their stages of transfers have
  // one. Equal stages take exactly as long.
  std::mt19937 random(3);
  const Cluster cluster = even_cluster(8, 1e-6);
  for (int trial = 0; trial < 30; ++trial) {
    OperatorGraph graph = random_chain(random, 4);
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

std::int64_t alpa_ticks(const std::vector<std::int64_t>& stages, std::int64_t m) {
  std::int64_t sum = 0;
  std::int64_t most = 0;
  for (const std::int64_t one : stages) {
    sum += one;
    most = std::max(most, one);
  }
  return sum + (m - 1) * most;
}

// The least over all layouts of all layers.
std::int64_t enumerated_layouts(const StageCost& cost, const PlacedStage& stage) {
  std::int64_t best = kNone;
  std::vector<LayerLayout> chosen;
  const std::function<void()> extend = [&] {
    const int layer = stage.first_layer + static_cast<int>(chosen.size());
    if (layer < stage.end_layer) {
      for (const LayerLayout layout : layouts_of(cost, layer, stage.replicas())) {
        chosen.push_back(layout);
        extend();
        chosen.pop_back();
      }
      return;
    }
    std::int64_t ticks = 0;
    LayerLayout before = LayerLayout::kWhole;
    for (int i = stage.first_layer; i < stage.end_layer; ++i) {
      const LayerLayout layout = chosen[static_cast<std::size_t>(i - stage.first_layer)];
      if (i > 0) ticks += reshard_ticks(cost, i - 1, before, layout, stage);
      ticks += layout_ticks(cost, i, layout, stage);
      before = layout;
    }
    best = std::min(
        best, ticks + reshard_ticks(cost, stage.end_layer - 1, before, LayerLayout::kWhole, stage));
  };
  extend();
  return best;
}

TEST(Partitioners, Pl5LayoutsOfAStageAreTheBestOfEverything) {
  each_cost(8, 6, [&](const StageCost& cost) {
    for (const int devices : {1, 2, 4}) {
      const PlacedStage stage{0, cost.layers(), 0, devices};
      const StageLayouts found = best_layouts(cost, stage);
      EXPECT_EQ(found.ticks, enumerated_layouts(cost, stage));
      EXPECT_EQ(found.layouts.size(), static_cast<std::size_t>(cost.layers()));
    }
  });
}

TEST(Partitioners, Pl5AlpaIsTheBestOfEverything) {
  int refused = 0;
  each_cost(8, 8, [&](const StageCost& cost) {
    std::int64_t best = kNone;
    each_partition(cost.layers(), cost.devices(), [&](const std::vector<PlacedStage>& stages) {
      if (stages.back().end_device != cost.devices()) return;
      std::vector<std::int64_t> ticks;
      int left = static_cast<int>(stages.size());
      for (const PlacedStage& stage : stages) {
        if (!is_submesh(cost.cluster(), stage.first_device, stage.end_device)) return;
        const StageLayouts layouts = best_layouts(cost, stage);
        if (!layouts_fit(cost, stage, layouts.layouts, left--)) return;
        ticks.push_back(layouts.ticks);
      }
      best = std::min(best, alpa_ticks(ticks, cost.micro_batches()));
    });
    expect_equal(best, partition_alpa(cost));
    refused += best == kNone ? 1 : 0;
  });
  EXPECT_GT(refused, 0);
}

TEST(Partitioners, Pl5AlpasObjectiveBoundsTheSimulatedStepOfOneDeviceStages) {
  // Backward is twice the forward everywhere, links cost nothing to speak of. What stands behind
  // the slowest stage hides under it, so that the objective is what a step takes where that is the
  // last.
  std::mt19937 random(5);
  const Cluster cluster = even_cluster(4, 1e-9);
  for (int trial = 0; trial < 20; ++trial) {
    OperatorGraph graph = random_chain(random, 4);
    for (GraphOperator& one : graph.operators) {
      one.forward_macs = 32 * (1 + static_cast<std::int64_t>(random() % 100));
      if (trial % 2 == 0 && &one == &graph.operators.back()) one.forward_macs = 32 * 100;
      one.backward_macs = 2 * one.forward_macs;
    }
    const auto cost = StageCost::make(graph, cluster, {.activation_ratio = 1e-9}, 8).value();
    std::vector<PlacedStage> stages;
    std::vector<std::int64_t> ticks;
    for (int i = 0; i < 4; ++i) {
      stages.push_back({i, i + 1, i, i + 1});
      ticks.push_back(cost.forward(stages.back()) + cost.backward(stages.back()));
    }
    const std::int64_t objective = alpa_ticks(ticks, 8);
    const std::int64_t simulated = simulate_stages(cost, stages).value();
    // Transfers are rounded up to a nanosecond each.
    if (trial % 2 == 0) {
      EXPECT_GE(simulated, objective);
    }
    EXPECT_LE(simulated, objective + 6 * 8 + 6);
  }
}

TEST(Partitioners, AlpaWantsAChain) {
  OperatorGraph graph{.name = "fork", .samples = 8};
  graph.operators = {{.name = "a"}, {.name = "b", .inputs = {0}}, {.name = "c", .inputs = {0}}};
  const Cluster cluster = even_cluster(2, 1);
  const auto cost = StageCost::make(graph, cluster, {}, 4).value();
  EXPECT_THAT(partition_alpa(cost).error(), fails(Code::kInvalidArgument, "c", "chain"));
  // A cut in front of c sends a's output past b.
  EXPECT_EQ(cost.cut_bytes(1), 8 * 4);
  EXPECT_EQ(cost.cut_bytes(2), 8 * 4);
  EXPECT_THAT(StageCost::make(graph, cluster, {}, 9).error(),
              fails(Code::kInvalidArgument, "9", "1 to 8"));
}

}  // namespace
}  // namespace gradwire::partitioners_test
