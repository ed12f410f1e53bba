#include <algorithm>
#include <bit>
#include <limits>

#include "base/text.h"
#include "planner/cost/layer_layouts.h"
#include "planner/search/pareto.h"
#include "planner/search/partitioners.h"

namespace gradwire {
namespace {

// Where a suffix's first stage ends, and which entry of the suffix behind it is meant.
struct Rest {
  int layer = 0;
  int device = 0;
  std::size_t entry = 0;
};
using Sums = ParetoFront<2, Rest>;  // the sum of the stages' times, and the greatest

Status check_chain(const OperatorGraph& graph) {
  for (int number = 0; number < graph.size(); ++number) {
    const auto& inputs = graph.at(number).inputs;
    if (number == 0 ? inputs.empty() : inputs == std::vector<int>{number - 1}) continue;
    return {Code::kInvalidArgument,
            format("alpa: operator '%s' reads others than the one before it (expected a chain)",
                   graph.at(number).name.c_str())};
  }
  return {};
}

// Suffixes by stages, first layer, first device.
class SubmeshSuffixes {
 public:
  explicit SubmeshSuffixes(const StageCost& cost)
      : cost_(cost),
        most_(std::min(cost.layers(), cost.devices())),
        fronts_((static_cast<std::size_t>(most_) + 1) * rows() * columns()) {
    at(0, cost.layers(), cost.devices()).add({0, 0}, {});
    for (int device = cost.devices() - 1; device >= 0; --device) {
      for (int next = device + 1; next <= cost.devices(); ++next) {
        if (!is_submesh(cost.cluster(), device, next)) continue;
        for (int layer = 0; layer < cost.layers(); ++layer) {
          for (int end = layer + 1; end <= cost.layers(); ++end) add({layer, end, device, next});
        }
      }
    }
  }

  StagePartition best() {
    const std::int64_t m = cost_.micro_batches();
    StagePartition best{.ticks = std::numeric_limits<std::int64_t>::max()};
    for (int stages = 1; stages <= most_; ++stages) {
      const auto& entries = at(stages, 0, 0).entries();
      for (std::size_t i = 0; i < entries.size(); ++i) {
        const std::int64_t ticks = entries[i].values[0] + (m - 1) * entries[i].values[1];
        if (ticks >= best.ticks) continue;
        best.ticks = ticks;
        best.stages = stages_of(stages, i);
      }
    }
    return best;
  }

 private:
  std::size_t rows() const { return static_cast<std::size_t>(cost_.layers()) + 1; }
  std::size_t columns() const { return static_cast<std::size_t>(cost_.devices()) + 1; }
  Sums& at(int stages, int layer, int device) {
    return fronts_[(static_cast<std::size_t>(stages) * rows() + static_cast<std::size_t>(layer)) *
                       columns() +
                   static_cast<std::size_t>(device)];
  }

  // In front of all suffixes that begin where the stage ends. Those on fewer devices are there.
  void add(const PlacedStage& stage) {
    std::int64_t ticks = -1;
    StageLayouts layouts;
    for (int stages = 1; stages <= most_; ++stages) {
      const auto& behind = at(stages - 1, stage.end_layer, stage.end_device).entries();
      if (behind.empty()) continue;
      if (ticks < 0) {
        layouts = best_layouts(cost_, stage);
        ticks = layouts.ticks;
      }
      const int contexts = std::min(stages, cost_.micro_batches());
      if (!layouts_fit(cost_, stage, layouts.layouts, contexts)) continue;
      for (std::size_t i = 0; i < behind.size(); ++i) {
        at(stages, stage.first_layer, stage.first_device)
            .add({behind[i].values[0] + ticks, std::max(behind[i].values[1], ticks)},
                 {stage.end_layer, stage.end_device, i});
      }
    }
  }

  std::vector<PlacedStage> stages_of(int stages, std::size_t entry) {
    std::vector<PlacedStage> all;
    int layer = 0;
    int device = 0;
    for (; stages > 0; --stages) {
      const Rest rest = at(stages, layer, device).entries()[entry].from;
      all.push_back({layer, rest.layer, device, rest.device});
      layer = rest.layer;
      device = rest.device;
      entry = rest.entry;
    }
    return all;
  }

  const StageCost& cost_;
  int most_;  // stages
  std::vector<Sums> fronts_;
};

}  // namespace

bool is_submesh(const Cluster& cluster, int first, int end) {
  int begin = 0;
  bool starts = false;  // at a node's first device
  for (const ClusterNode& node : cluster.nodes) {
    const int next = begin + node.devices;
    if (first >= begin && end <= next && std::has_single_bit(static_cast<unsigned>(end - first))) {
      return true;
    }
    starts = starts || first == begin;
    if (starts && end == next) return true;
    begin = next;
  }
  return false;
}

Result<StagePartition> partition_alpa(const StageCost& cost) {
  GW_TRY(check_chain(cost.graph()));
  StagePartition best = SubmeshSuffixes(cost).best();
  if (!best.stages.empty()) return best;
  return Status(Code::kInvalidArgument,
                format("alpa: no partition of %d layers fits %d devices (expected more memory)",
                       cost.layers(), cost.devices()));
}

}  // namespace gradwire
