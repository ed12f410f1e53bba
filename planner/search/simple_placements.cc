#include "planner/search/simple_placements.h"

#include <algorithm>

#include "planner/search/draws.h"
#include "trainer/pipeline/cut_layers.h"

namespace gradwire {
namespace {

// A layer after another over the devices, as many layers on each as on any other or one more.
OperatorStrategy place_layers(const OperatorGraph& graph, int layers, int devices) {
  OperatorStrategy strategy;
  for (const GraphOperator& one : graph.operators) {
    OperatorSplit split;
    split.devices = {one.layer * std::min(devices, layers) / layers};
    strategy.push_back(std::move(split));
  }
  return strategy;
}

}  // namespace

std::vector<std::int64_t> group_macs(const OperatorGraph& graph) {
  std::vector<std::int64_t> costs;
  for (const auto& group : graph.groups()) {
    std::int64_t macs = 0;
    for (const int one : group) macs += graph.at(one).forward_macs + graph.at(one).backward_macs;
    costs.push_back(macs);
  }
  return costs;
}

Result<std::vector<int>> equal_cuts(const OperatorGraph& graph, int parts) {
  const std::vector<std::int64_t> costs = group_macs(graph);
  const int most = static_cast<int>(std::min<std::size_t>(costs.size(), 1U << 16U));
  GW_ASSIGN(const std::vector<Range> runs, cut_layers(costs, std::min(parts, most)));
  std::vector<int> part_of;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    part_of.resize(static_cast<std::size_t>(runs[run].end), static_cast<int>(run));
  }
  return part_of;
}

Status OneDevicePlacement::search(SearchRecord& record) {
  const OperatorGraph& graph = record.cost().graph();
  const std::size_t groups = graph.groups().size();
  for (int device = 0; device < record.cost().cluster().devices(); ++device) {
    if (device > 0 && record.is_spent()) break;
    GW_TRY(record.time(place_groups(graph, std::vector<int>(groups, device))).error());
  }
  return {};
}

Result<OperatorStrategy> cut_by_hand(const OperatorGraph& graph, int devices) {
  int layers = 0;
  bool all_have = true;
  for (const GraphOperator& one : graph.operators) {
    layers = std::max(layers, one.layer + 1);
    all_have = all_have && one.layer >= 0;
  }
  if (all_have) return place_layers(graph, layers, devices);
  GW_ASSIGN(const std::vector<int> cuts, equal_cuts(graph, devices));
  return place_groups(graph, cuts);
}

Status ExpertPlacement::search(SearchRecord& record) {
  GW_TRY(OneDevicePlacement().search(record));
  GW_ASSIGN(const OperatorStrategy cut,
            cut_by_hand(record.cost().graph(), record.cost().cluster().devices()));
  return record.time(cut).error();
}

Status RandomPlacement::search(SearchRecord& record) {
  const OperatorGraph& graph = record.cost().graph();
  SearchDraws draws(record.budget().seed);
  std::vector<int> devices(graph.groups().size());
  while (!record.is_spent()) {
    for (int& device : devices) device = draws.below(record.cost().cluster().devices());
    GW_TRY(record.time(place_groups(graph, devices)).error());
  }
  return {};
}

}  // namespace gradwire
