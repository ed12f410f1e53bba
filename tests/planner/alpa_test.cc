// Alpa's partitioner and its layouts against a search over everything, by ==.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "planner/search/partitioners.h"
#include "tests/planner/even_cluster.h"
#include "tests/planner/stage_costs.h"
#include "tests/support/fails.h"

namespace gradwire::alpa_test {
namespace {

std::int64_t alpa_ticks(const std::vector<std::int64_t>& stages, std::int64_t m) {
  std::int64_t sum = 0;
  std::int64_t most = 0;
  for (const std::int64_t one : stages) {
    sum += one;
    most = std::max(most, one);
  }
  return sum + (m - 1) * most;
}

// A stage's time under every layout of every layer, none left out.
class EveryLayout {
 public:
  EveryLayout(const StageCost& cost, const PlacedStage& stage) : cost_(cost), stage_(stage) {
    for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
      std::vector<Way> ways;
      for (const LayerLayout layout : layouts_of(cost, layer, stage.replicas())) {
        ways.push_back({layout, layout_ticks(cost, layer, layout, stage), {}});
        if (layer == 0) continue;
        for (const LayerLayout before : before_) {
          ways.back().reshard.push_back(reshard_ticks(cost, layer - 1, before, layout, stage));
        }
      }
      before_.clear();
      for (const Way& way : ways) before_.push_back(way.layout);
      layers_.push_back(std::move(ways));
    }
    extend(0, 0, 0);
  }
  std::int64_t least() const { return least_; }

 private:
  struct Way {
    LayerLayout layout = LayerLayout::kWhole;
    std::int64_t ticks = 0;
    std::vector<std::int64_t> reshard = {};  // by the layout of the layer before; empty: none
  };

  void extend(std::size_t layer, std::size_t before, std::int64_t ticks) {
    if (layer == layers_.size()) {
      const LayerLayout last = layers_.back()[before].layout;
      least_ = std::min(least_, ticks + reshard_ticks(cost_, stage_.end_layer - 1, last,
                                                      LayerLayout::kWhole, stage_));
      return;
    }
    const std::vector<Way>& ways = layers_[layer];
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const std::int64_t reshard = ways[i].reshard.empty() ? 0 : ways[i].reshard[before];
      extend(layer + 1, i, ticks + reshard + ways[i].ticks);
    }
  }

  const StageCost& cost_;
  PlacedStage stage_;
  std::vector<LayerLayout> before_{LayerLayout::kWhole};  // in front of the stage
  std::vector<std::vector<Way>> layers_;
  std::int64_t least_ = kNoTicks;
};

// Of the layouts that are named, layer by layer.
std::int64_t ticks_of(const StageCost& cost, const PlacedStage& stage,
                      const std::vector<LayerLayout>& layouts) {
  std::int64_t ticks = 0;
  LayerLayout before = LayerLayout::kWhole;
  for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
    const LayerLayout layout = layouts[static_cast<std::size_t>(layer - stage.first_layer)];
    EXPECT_THAT(layouts_of(cost, layer, stage.replicas()), ::testing::Contains(layout));
    if (layer > 0) ticks += reshard_ticks(cost, layer - 1, before, layout, stage);
    ticks += layout_ticks(cost, layer, layout, stage);
    before = layout;
  }
  return ticks + reshard_ticks(cost, stage.end_layer - 1, before, LayerLayout::kWhole, stage);
}

constexpr LayerLayout kLayouts[] = {LayerLayout::kWhole,    LayerLayout::kSamples,
                                    LayerLayout::kOutputs,  LayerLayout::kInputs,
                                    LayerLayout::kChannels, LayerLayout::kInside};

TEST(Alpa, Pl5LayoutsOfAStageAreTheBestOfEverything) {
  std::map<LayerLayout, int> chosen;
  each_cost(true, 7, [&](const std::vector<StageCost>& costs) {
    for (const StageCost& cost : costs) {
      const int n = cost.layers();
      for (const PlacedStage& stage : std::vector<PlacedStage>{
               {0, n, 0, 1}, {0, n, 0, 2}, {n / 2, n, 1, 3}, {n / 3, n, 2, 4}, {0, n, 0, 4}}) {
        const StageLayouts found = best_layouts(cost, stage);
        ASSERT_EQ(found.layouts.size(), static_cast<std::size_t>(n - stage.first_layer));
        ASSERT_EQ(found.ticks, EveryLayout(cost, stage).least()) << n << " layers";
        ASSERT_EQ(found.ticks, ticks_of(cost, stage, found.layouts)) << n << " layers";
        for (const LayerLayout layout : found.layouts) ++chosen[layout];
      }
    }
  });
  for (const LayerLayout layout : kLayouts) EXPECT_GT(chosen[layout], 0) << to_string(layout);
}

// The least over all partitions and all layouts. A stage whose quickest layouts do not fit is none.
std::int64_t best_of_everything(const StageCost& cost) {
  std::map<std::tuple<int, int, int, int>, std::int64_t> least;
  const auto ticks_of_stage = [&](const PlacedStage& stage) {
    const auto [at, is_new] = least.try_emplace(
        {stage.first_layer, stage.end_layer, stage.first_device, stage.end_device}, 0);
    if (is_new) at->second = EveryLayout(cost, stage).least();
    return at->second;
  };
  std::int64_t best = kNoTicks;
  each_partition(cost.layers(), cost.devices(), [&](const std::vector<PlacedStage>& stages) {
    if (stages.back().end_device != cost.devices()) return;
    std::vector<std::int64_t> ticks;
    int left = static_cast<int>(stages.size());
    for (const PlacedStage& stage : stages) {
      if (!is_submesh(cost.cluster(), stage.first_device, stage.end_device)) return;
      const int contexts = std::min(left--, cost.micro_batches());
      if (!layouts_fit(cost, stage, best_layouts(cost, stage).layouts, contexts)) return;
      ticks.push_back(ticks_of_stage(stage));
    }
    best = std::min(best, alpa_ticks(ticks, cost.micro_batches()));
  });
  return best;
}

std::int64_t partition_ticks(const StageCost& cost, const std::vector<PlacedStage>& stages) {
  std::vector<std::int64_t> ticks;
  int left = static_cast<int>(stages.size());
  for (const PlacedStage& stage : stages) {
    const StageLayouts layouts = best_layouts(cost, stage);
    const int contexts = std::min(left--, cost.micro_batches());
    if (!is_submesh(cost.cluster(), stage.first_device, stage.end_device)) return kNoTicks;
    if (!layouts_fit(cost, stage, layouts.layouts, contexts)) return kNoTicks;
    ticks.push_back(layouts.ticks);
  }
  return alpa_ticks(ticks, cost.micro_batches());
}

TEST(Alpa, Pl5IsTheBestOfEverything) {
  expect_best_of_everything(
      true, 7, {.partition = partition_alpa, .best = best_of_everything, .ticks = partition_ticks});
}

TEST(Alpa, Pl5ObjectiveBoundsTheSimulatedStepOfOneDeviceStages) {
  // Backward is twice the forward everywhere, links cost nothing to speak of. What stands behind
  // the slowest stage hides under it, so that the objective is what a step takes where that is the
  // last.
  std::mt19937 random(5);
  const Cluster cluster = even_cluster(4, 1e-9);
  for (int trial = 0; trial < 20; ++trial) {
    OperatorGraph graph = random_layers(random, 4);
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

TEST(Alpa, WantsAChain) {
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
}  // namespace gradwire::alpa_test
