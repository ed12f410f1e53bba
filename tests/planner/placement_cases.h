// Clusters and calls for tests of searchers of placements.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "planner/search/have_metis.h"
#include "planner/search/placement_search.h"
#include "tests/planner/even_cluster.h"

namespace gradwire {

// Devices of 10^13 products a second, links of 10 GB/s and 5 us.
inline Cluster even_gpus(int devices = 4) {
  Cluster cluster = even_cluster(devices, 0.1, 5000);
  cluster.types[0].macs_per_second = 1e13;
  return cluster;
}

// Two nodes of two; the second one's are half as fast, a tenth of the links' bandwidth between.
inline Cluster uneven_gpus() {
  Cluster cluster = uneven_cluster(2, 0.1);
  cluster.types[0].macs_per_second = 1e13;
  cluster.types[1].macs_per_second = 5e12;
  cluster.types[1].memory_bytes = cluster.types[0].memory_bytes;
  cluster.links[0].latency = 5000;
  cluster.links[1].latency = 20'000;
  return cluster;
}

inline SearchResult found_by(const std::string& method, const OperatorGraph& graph,
                             const Cluster& cluster, std::int64_t evaluations,
                             std::uint64_t seed = 1) {
  const auto cost = SimulatedCost::make(graph, cluster, {}).value();
  auto result = search_placement(method, *cost, {.seed = seed, .evaluations = evaluations});
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return result.has_value() ? std::move(result).value() : SearchResult{};
}

// Those that cut the graph: ours, and METIS's where this build has it.
inline std::vector<std::string> cut_methods() {
  std::vector<std::string> methods{"min-cut"};
  if (kHaveMetis) methods.emplace_back("metis");
  return methods;
}

}  // namespace gradwire
