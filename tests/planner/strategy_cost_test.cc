// The simulated cost of strategies: closed forms, and placements against a slow run.
#include "planner/cost/strategy_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "planner/graph/built_in_graphs.h"
#include "tests/planner/even_cluster.h"
#include "tests/reference/placement_reference.h"
#include "tests/support/fails.h"

namespace gradwire::strategy_cost_test {
namespace {

// Two layers, of 8 samples: 800 and 80 products forward.
OperatorGraph two_layers() {
  OperatorGraph graph{.name = "two", .samples = 8};
  graph.operators = {{.name = "a",
                      .forward_macs = 800,
                      .backward_macs = 1600,
                      .parameter_bytes = 400,
                      .channels = 10,
                      .splits_channels = true},
                     {.name = "b",
                      .forward_macs = 80,
                      .backward_macs = 160,
                      .parameter_bytes = 80,
                      .channels = 2,
                      .splits_channels = true,
                      .inputs = {0}}};
  return graph;
}

StrategyTime time_of(const OperatorGraph& graph, const Cluster& cluster,
                     const OperatorStrategy& strategy, const CostOptions& options = {}) {
  auto cost = SimulatedCost::make(graph, cluster, options);
  EXPECT_TRUE(cost.has_value()) << cost.error().message();
  auto time = cost.value()->time(strategy);
  EXPECT_TRUE(time.has_value()) << time.error().message();
  return time.has_value() ? time.value() : StrategyTime{};
}

TEST(StrategyCost, OneDeviceTakesTheSumOfItsOperators) {
  const OperatorGraph graph = two_layers();
  const StrategyTime time = time_of(graph, even_cluster(2, 1), place_groups(graph, {1, 1}));
  EXPECT_EQ(time.ticks, 800 + 80 + 160 + 1600);
  EXPECT_EQ(time.memory, (std::vector<std::int64_t>{0, 4 * 480 + 8 * 12 * 4}));
}

TEST(StrategyCost, TwoDevicesSendThereAndBack) {
  const OperatorGraph graph = two_layers();
  const std::int64_t bytes = 8 * 10 * 4;
  EXPECT_EQ(time_of(graph, even_cluster(2, 2, 7), place_groups(graph, {0, 1})).ticks,
            800 + 80 + 160 + 1600 + 2 * (2 * bytes + 7));
  const CostOptions quarter{.activation_ratio = 0.25};
  EXPECT_EQ(time_of(graph, even_cluster(2, 2, 7), place_groups(graph, {0, 1}), quarter).ticks,
            800 + 80 + 160 + 1600 + 2 * (2 * bytes / 4 + 7));
}

TEST(StrategyCost, DataParallelismReducesGradients) {
  // Four replicas: a quarter of the products; b's ring of 6 messages of 20 bytes hides behind a's
  // backward, a's of 100 bytes does not.
  const OperatorGraph graph = two_layers();
  const Cluster cluster = even_cluster(4, 1, 5);
  const std::int64_t computed = (800 + 80 + 160 + 1600) / 4;
  EXPECT_EQ(time_of(graph, cluster, data_parallel(graph, cluster)).ticks, computed + 6 * (100 + 5));
  const CostOptions hundredth{.gradient_ratio = 0.01};
  EXPECT_EQ(time_of(graph, cluster, data_parallel(graph, cluster), hundredth).ticks,
            computed + 6 * (1 + 5));
}

TEST(StrategyCost, ChannelsDivideParametersAndSendOutputs) {
  // Both layers by channels on two devices: halves of a's output are exchanged, gradients of a's
  // output come back from both halves of b, parameters are nowhere twice.
  const OperatorGraph graph = two_layers();
  const OperatorSplit split{.channels = 2, .devices = {0, 1}};
  const StrategyTime time = time_of(graph, even_cluster(2, 1), {split, split});
  const std::int64_t half = 8 * 5 * 4;
  EXPECT_EQ(time.ticks, 400 + half + 40 + 80 + half + 800);
  EXPECT_EQ(time.memory[0], 4 * 240 + 8 * 6 * 4);
}

TEST(StrategyCost, WhatIsReadTwiceOnADeviceIsSentOnce) {
  OperatorGraph graph = two_layers();
  graph.operators.push_back(graph.operators[1]);
  graph.operators[2].name = "c";
  const Cluster cluster = even_cluster(2, 1);
  const auto cost = SimulatedCost::make(graph, cluster, {}).value();
  const LoweredStrategy lowered = cost->lower(place_groups(graph, {0, 1, 1})).value();
  const auto sends =
      std::ranges::count(lowered.meaning, StrategyTask::Kind::kSend, &StrategyTask::kind);
  EXPECT_EQ(sends, 1 + 2);
}

TEST(StrategyCost, MemoryBeyondADevicesIsCounted) {
  const OperatorGraph graph = two_layers();
  Cluster cluster = even_cluster(2, 1);
  cluster.types[0].memory_bytes = 1000;
  const StrategyTime one = time_of(graph, cluster, place_groups(graph, {0, 0}));
  EXPECT_EQ(one.over, 4 * 480 + 8 * 12 * 4 - 1000);
  // What is over less is better, however long it takes.
  StrategyTime other = one;
  other.over -= 1;
  other.ticks *= 10;
  EXPECT_LT(other, one);
}

TEST(StrategyCost, PlacementsAsTheSlowRunHasThem) {
  std::mt19937 random(7);
  for (const OperatorGraph& graph :
       {unrolled_lstm(2, 4, 4, 8), inception_like(1, 2, 4), two_layers()}) {
    for (int trial = 0; trial < 12; ++trial) {
      const Cluster cluster = even_cluster(3, 1 + trial % 3 * 20, trial % 2 * 40);
      std::vector<int> devices;
      OperatorStrategy strategy;
      for (int number = 0; number < graph.size(); ++number) {
        devices.push_back(static_cast<int>(random() % 3));
        strategy.push_back({.devices = {devices.back()}});
      }
      EXPECT_EQ(time_of(graph, cluster, strategy).ticks,
                reference::SlowPlacement(graph, cluster, devices).run())
          << graph.name << ", trial " << trial;
    }
  }
}

TEST(StrategyCost, BadStrategiesAreNamed) {
  const OperatorGraph graph = two_layers();
  const Cluster cluster = even_cluster(2, 1);
  const auto cost = SimulatedCost::make(graph, cluster, {}).value();
  const OperatorSplit whole{.devices = {0}};
  EXPECT_THAT(cost->time({whole}).error(), fails(Code::kInvalidArgument, "1", "2"));
  EXPECT_THAT(cost->time({whole, {.devices = {2}}}).error(),
              fails(Code::kInvalidArgument, "b", "2", "0 to 1"));
  EXPECT_THAT(cost->time({{.channels = 2, .devices = {0}}, whole}).error(),
              fails(Code::kInvalidArgument, "a", "1 devices", "2 parts"));
  EXPECT_THAT(cost->time({{.positions = 2, .devices = {0, 1}}, whole}).error(),
              fails(Code::kInvalidArgument, "a", "positions", "2"));
  EXPECT_THAT(SimulatedCost::make(graph, cluster, {.gradient_ratio = 0}).error(),
              fails(Code::kInvalidArgument, "gradient ratio", "0"));
}

}  // namespace
}  // namespace gradwire::strategy_cost_test
