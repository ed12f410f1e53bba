#include "planner/cost/layer_layouts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace gradwire {
namespace {

enum class Parts : std::uint8_t { kAll, kBySamples, kByChannels };

Parts reads(LayerLayout layout) {
  switch (layout) {
    case LayerLayout::kSamples: return Parts::kBySamples;
    case LayerLayout::kInputs:
    case LayerLayout::kChannels: return Parts::kByChannels;
    case LayerLayout::kWhole:
    case LayerLayout::kOutputs:
    case LayerLayout::kInside: break;
  }
  return Parts::kAll;
}

Parts writes(LayerLayout layout) {
  switch (layout) {
    case LayerLayout::kSamples: return Parts::kBySamples;
    case LayerLayout::kOutputs:
    case LayerLayout::kChannels: return Parts::kByChannels;
    case LayerLayout::kWhole:
    case LayerLayout::kInputs:
    case LayerLayout::kInside: break;
  }
  return Parts::kAll;
}

// Ticks of a collective in which each device sends `bytes` over the stage's slowest path.
std::int64_t sent(const StageCost& cost, const PlacedStage& stage, double bytes) {
  return static_cast<std::int64_t>(
      std::ceil(bytes * cost.options().activation_ratio * cost.slowest_byte(stage)));
}

// Bytes of a micro-batch's output.
double output(const StageCost& cost, int layer) {
  return static_cast<double>(cost.graph().output_bytes(layer)) / cost.micro_batches();
}

// Of what the layer reads; 0 for the first one, which reads data.
double input(const StageCost& cost, int layer) { return layer == 0 ? 0 : output(cost, layer - 1); }

std::int64_t all_reduce(const StageCost& cost, const PlacedStage& stage, double bytes) {
  const double n = stage.replicas();
  return sent(cost, stage, 2 * (n - 1) / n * bytes);
}

}  // namespace

std::string_view to_string(LayerLayout layout) {
  constexpr std::array<std::string_view, 6> kNames{"whole",  "samples",  "outputs",
                                                   "inputs", "channels", "inside"};
  return kNames[static_cast<std::size_t>(layout)];
}

std::vector<LayerLayout> layouts_of(const StageCost& cost, int layer, int devices) {
  std::vector<LayerLayout> all{LayerLayout::kWhole};
  if (devices == 1) return all;
  const OperatorGraph& graph = cost.graph();
  const GraphOperator& one = graph.at(layer);
  if (graph.samples / cost.micro_batches() >= devices) all.push_back(LayerLayout::kSamples);
  const bool wide = one.channels >= devices;
  if (one.splits_channels && one.reads_all_channels) {
    if (wide) all.push_back(LayerLayout::kOutputs);
    if (layer > 0 && graph.at(layer - 1).channels >= devices) {
      all.push_back(LayerLayout::kInputs);
    }
  }
  if (one.splits_channels && !one.reads_all_channels && wide) {
    all.push_back(LayerLayout::kChannels);
  }
  if (one.splits_inside) all.push_back(LayerLayout::kInside);
  return all;
}

std::int64_t layout_ticks(const StageCost& cost, int layer, LayerLayout layout,
                          const PlacedStage& stage) {
  PlacedStage one = stage;
  one.first_layer = layer;
  one.end_layer = layer + 1;
  if (layout == LayerLayout::kWhole) {
    // Every device does all of it: the slowest is as slow as it is alone.
    std::int64_t slowest = 0;
    for (int device = stage.first_device; device < stage.end_device; ++device) {
      one.first_device = device;
      one.end_device = device + 1;
      slowest = std::max(slowest, cost.forward(one) + cost.backward(one));
    }
    return slowest;
  }
  const std::int64_t computed = cost.forward(one) + cost.backward(one);
  switch (layout) {
    case LayerLayout::kSamples: {
      const std::int64_t m = cost.micro_batches();
      return computed + (cost.reduce(one) + m - 1) / m;
    }
    case LayerLayout::kOutputs: return computed + all_reduce(cost, stage, input(cost, layer));
    case LayerLayout::kInputs: return computed + all_reduce(cost, stage, output(cost, layer));
    case LayerLayout::kInside:
      return computed + all_reduce(cost, stage, input(cost, layer)) +
             all_reduce(cost, stage, output(cost, layer));
    case LayerLayout::kWhole:
    case LayerLayout::kChannels: break;
  }
  return computed;
}

std::int64_t reshard_ticks(const StageCost& cost, int layer, LayerLayout from, LayerLayout to,
                           const PlacedStage& stage) {
  const Parts has = writes(from);
  const Parts wants = reads(to);
  const double n = stage.replicas();
  if (has == wants || stage.replicas() == 1) return 0;
  const double bytes = output(cost, layer);
  if (has == Parts::kAll || wants == Parts::kAll) return sent(cost, stage, (n - 1) / n * bytes);
  return 2 * sent(cost, stage, (n - 1) / n / n * bytes);
}

StageLayouts best_layouts(const StageCost& cost, const PlacedStage& stage) {
  struct Way {
    LayerLayout layout = LayerLayout::kWhole;
    std::int64_t ticks = 0;  // of the layers up to this one
    std::size_t before = 0;  // the way of the layer before it
  };
  // Before the first layer, and behind the last one, there is something whole.
  std::vector<std::vector<Way>> ways{{Way{}}};
  for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
    std::vector<Way> next;
    for (const LayerLayout layout : layouts_of(cost, layer, stage.replicas())) {
      Way best{layout, std::numeric_limits<std::int64_t>::max(), 0};
      for (std::size_t before = 0; before < ways.back().size(); ++before) {
        const Way& way = ways.back()[before];
        const std::int64_t ticks =
            way.ticks +
            (layer == 0 ? 0 : reshard_ticks(cost, layer - 1, way.layout, layout, stage));
        if (ticks < best.ticks) best = {layout, ticks, before};
      }
      best.ticks += layout_ticks(cost, layer, layout, stage);
      next.push_back(best);
    }
    ways.push_back(std::move(next));
  }
  StageLayouts best{.ticks = std::numeric_limits<std::int64_t>::max()};
  std::size_t last = 0;
  for (std::size_t i = 0; i < ways.back().size(); ++i) {
    const Way& way = ways.back()[i];
    const std::int64_t ticks = way.ticks + reshard_ticks(cost, stage.end_layer - 1, way.layout,
                                                         LayerLayout::kWhole, stage);
    if (ticks < best.ticks) {
      best.ticks = ticks;
      last = i;
    }
  }
  for (std::size_t level = ways.size() - 1; level > 0; --level) {
    best.layouts.push_back(ways[level][last].layout);
    last = ways[level][last].before;
  }
  std::ranges::reverse(best.layouts);
  return best;
}

bool layouts_fit(const StageCost& cost, const PlacedStage& stage,
                 const std::vector<LayerLayout>& layouts, int contexts) {
  const double n = stage.replicas();
  double needed = 0;
  for (int layer = stage.first_layer; layer < stage.end_layer; ++layer) {
    const LayerLayout layout = layouts[static_cast<std::size_t>(layer - stage.first_layer)];
    const bool all = layout == LayerLayout::kWhole || layout == LayerLayout::kSamples;
    needed += static_cast<double>(cost.graph().at(layer).parameter_bytes) *
              cost.options().state_ratio / (all ? 1 : n);
    needed += output(cost, layer) * contexts / (writes(layout) == Parts::kAll ? 1 : n);
  }
  for (int device = stage.first_device; device < stage.end_device; ++device) {
    if (needed > static_cast<double>(cost.cluster().type_of(device).memory_bytes)) return false;
  }
  return true;
}

}  // namespace gradwire
