#include "tests/adapters/planned_replicas.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "planner/cost/strategy_cost.h"

namespace gradwire::testing {

std::int64_t planned_replicas(int ranks, const LinkModel& links,
                              const std::vector<std::pair<std::int64_t, std::int64_t>>& layers) {
  constexpr double kNanoseconds = 1e9;
  Cluster cluster{.name = "replicas"};
  cluster.types = {{.name = "rank", .memory_bytes = 1 << 30, .macs_per_second = kNanoseconds}};
  // A little more than the links have, so that rounding up does not add a nanosecond.
  cluster.links = {{.name = "net",
                    .latency = std::llround(links.alpha * kNanoseconds),
                    .bytes_per_second = (1 + 1e-12) / links.beta}};
  for (int rank = 0; rank < ranks; ++rank) {
    cluster.nodes.push_back({.name = "node" + std::to_string(rank), .uplink = 0});
  }
  OperatorGraph graph{.name = "layers", .samples = ranks};
  for (const auto& [elems, nanoseconds] : layers) {
    GraphOperator one{.name = std::to_string(graph.size())};
    one.backward_macs = ranks * nanoseconds;
    one.parameter_bytes = 4 * elems;
    if (graph.size() > 0) one.inputs = {graph.size() - 1};
    graph.operators.push_back(one);
  }
  const auto cost = SimulatedCost::make(graph, cluster, {});
  EXPECT_TRUE(cost.has_value()) << cost.error().message();
  if (!cost.has_value()) return -1;
  const auto time = cost.value()->time(data_parallel(graph, cluster));
  EXPECT_TRUE(time.has_value()) << time.error().message();
  return time.has_value() ? time.value().ticks : -1;
}

}  // namespace gradwire::testing
