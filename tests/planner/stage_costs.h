// Costs of stages for tests of partitioners: every pair of what they depend on, and every partition
// of a few layers on a few devices.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "planner/search/partitioners.h"
#include "tests/planner/even_cluster.h"
#include "tests/support/fails.h"
#include "tests/support/short_run.h"

namespace gradwire {

constexpr std::int64_t kNoTicks = std::numeric_limits<std::int64_t>::max();  // nothing fits
constexpr double kGradientRatios[] = {1, 0.25, 0.01};
constexpr int kMostLayers = 8;
constexpr std::int64_t kLittleMemory = 10'000;  // some stages do not fit

// Random layers, some with many parameters, some with large outputs, some that split inside; a
// chain, or with outputs that are also read further behind.
inline OperatorGraph random_layers(std::mt19937& random, int layers, bool is_chain = true) {
  const auto below = [&random](int end) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(end));
  };
  OperatorGraph graph{.name = "layers", .samples = 32};
  for (int layer = 0; layer < layers; ++layer) {
    GraphOperator one{.name = std::to_string(layer)};
    one.forward_macs = 100 + below(5000);
    one.backward_macs = 2 * one.forward_macs;
    one.parameter_bytes = below(3) * below(3000);
    one.channels = 4 + below(20);
    one.splits_inside = below(4) == 0;
    one.splits_channels = !one.splits_inside;
    if (layer > 0) {
      one.inputs = {layer - 1};
      if (below(3) == 0) {
        one.channels = graph.operators.back().channels;
        one.splits_channels = true;
        one.reads_all_channels = false;
      } else if (!is_chain && layer > 1 && below(2) == 0) {
        one.inputs = {static_cast<int>(below(layer - 1)), layer - 1};
      }
    }
    graph.operators.push_back(std::move(one));
  }
  return graph;
}

// Every partition into consecutive stages on consecutive devices, from the first.
inline void each_partition(int layers, int devices,
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

// Of four devices: links that cost nothing to speak of, that cost as much as products, and more; a
// slower second node; and so little memory that some stages do not fit.
inline std::vector<Cluster> clusters_of_four() {
  std::vector<Cluster> all;
  for (const double byte_ticks : {0.05, 1.0, 8.0}) all.push_back(even_cluster(4, byte_ticks, 10));
  all.push_back(uneven_cluster(2, 0.5));
  all.push_back(even_cluster(4, 1, 10));
  all.back().types[0].memory_bytes = kLittleMemory;
  return all;
}

// The costs of one graph at every gradient ratio. Visited: clusters_of_four() x 1 to kMostLayers
// layers x activation ratios x micro-batches, all with all, of which a short run takes every
// `stride`-th (prime to 10). Returns how many graphs that were.
inline int each_cost(bool is_chain, int stride,
                     const std::function<void(const std::vector<StageCost>&)>& visit) {
  std::mt19937 random(11);
  ShortRun run(stride);
  int visited = 0;
  const auto with = [&](const Cluster& cluster, int layers, double activation_ratio, int m) {
    const OperatorGraph graph = random_layers(random, layers, is_chain);
    if (!run.takes()) return;
    std::vector<StageCost> costs;
    for (const double gradient_ratio : kGradientRatios) {
      const CostOptions options{.activation_ratio = activation_ratio,
                                .gradient_ratio = gradient_ratio};
      costs.push_back(StageCost::make(graph, cluster, options, m).value());
    }
    visit(costs);
    ++visited;
  };
  for (const Cluster& cluster : clusters_of_four()) {
    for (int layers = 1; layers <= kMostLayers; ++layers) {
      for (const double activation_ratio : {1.0, 0.5}) {
        for (const int m : {1, 3, 8, 32}) with(cluster, layers, activation_ratio, m);
      }
    }
  }
  return visited;
}

// Whether the stages are all layers in order on devices in order, from the first of both.
inline bool is_partition(const StageCost& cost, const std::vector<PlacedStage>& stages) {
  int layer = 0;
  int device = 0;
  for (const PlacedStage& stage : stages) {
    if (stage.first_layer != layer || stage.end_layer <= layer) return false;
    if (stage.first_device != device || stage.end_device <= device) return false;
    layer = stage.end_layer;
    device = stage.end_device;
  }
  return layer == cost.layers() && device <= cost.devices();
}

// One way to partition, and the best of everything for it.
struct PartitionProblem {
  std::function<Result<StagePartition>(const StageCost&)> partition;
  std::function<std::int64_t(const StageCost&)> best;  // kNoTicks: nothing fits
  // Of stages that are an answer; kNoTicks: they do not fit.
  std::function<std::int64_t(const StageCost&, const std::vector<PlacedStage>&)> ticks;
};

struct PartitionCounts {
  int compared = 0;  // answers
  int refused = 0;   // nothing fits
  int tight = 0;     // chains that are served with little memory
  int quicker =
      0;  // chains whose step is shorter under the smallest gradients than under whole ones
};

// The partitioner's answer against the best of everything, by ==. Returns the latter.
inline std::int64_t expect_best(const StageCost& cost, const PartitionProblem& problem,
                                PartitionCounts& counts) {
  const std::int64_t best = problem.best(cost);
  const auto found = problem.partition(cost);
  if (best == kNoTicks) {
    ++counts.refused;
    EXPECT_THAT(found.error(), fails(Code::kInvalidArgument, "fits"));
    return best;
  }
  ++counts.compared;
  EXPECT_TRUE(found.has_value()) << found.error().message();
  if (!found.has_value()) return best;
  EXPECT_EQ(found.value().ticks, best);
  EXPECT_TRUE(is_partition(cost, found.value().stages));
  EXPECT_EQ(problem.ticks(cost, found.value().stages), best) << "of the stages that it names";
  return best;
}

inline void expect_best_of_everything(bool is_chain, int stride, const PartitionProblem& problem) {
  PartitionCounts counts;
  const int graphs = each_cost(is_chain, stride, [&](const std::vector<StageCost>& costs) {
    std::vector<std::int64_t> best;
    for (const StageCost& cost : costs) {
      SCOPED_TRACE(testing::Message()
                   << cost.layers() << " layers, " << cost.micro_batches()
                   << " micro-batches, gradients x " << cost.options().gradient_ratio
                   << ", outputs x " << cost.options().activation_ratio);
      best.push_back(expect_best(cost, problem, counts));
    }
    const bool is_tight = costs.front().cluster().types[0].memory_bytes == kLittleMemory;
    counts.tight += is_tight && best.front() != kNoTicks ? 1 : 0;
    // Smaller gradients make no step longer; layouts that are then quicker may not fit.
    if (!is_tight) {
      EXPECT_TRUE(std::ranges::is_sorted(best, std::greater{}));
    }
    counts.quicker += best.back() < best.front() ? 1 : 0;
  });
  EXPECT_EQ(counts.compared + counts.refused, 3 * graphs);
  EXPECT_GT(counts.refused, 0);
  EXPECT_GT(counts.tight, 0);
  EXPECT_GT(counts.quicker, 0) << "gradients never matter";
}

}  // namespace gradwire
