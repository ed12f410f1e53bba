#include "planner/cost/strategy.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace gradwire {
namespace {

Status bad_split(const GraphOperator& one, const std::string& what) {
  return {Code::kInvalidArgument,
          format("strategy: operator '%s': %s", one.name.c_str(), what.c_str())};
}

Status check_parts(const GraphOperator& one, const char* what, int parts, std::int64_t elements,
                   bool may) {
  const std::int64_t most = may ? elements : 1;
  if (parts >= 1 && parts <= most) return {};
  return bad_split(one, format("%d parts of %s (expected 1 to %lld)", parts, what,
                               static_cast<long long>(most)));
}

}  // namespace

OperatorStrategy place_groups(const OperatorGraph& graph, const std::vector<int>& device_of_group) {
  OperatorStrategy strategy(graph.operators.size());
  const auto groups = graph.groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const int one : groups[group]) {
      strategy[static_cast<std::size_t>(one)].devices = {device_of_group[group]};
    }
  }
  return strategy;
}

OperatorStrategy data_parallel(const OperatorGraph& graph, const Cluster& cluster) {
  OperatorSplit split;
  split.samples = static_cast<int>(std::min<std::int64_t>(graph.samples, cluster.devices()));
  split.devices.resize(static_cast<std::size_t>(split.samples));
  std::iota(split.devices.begin(), split.devices.end(), 0);
  return OperatorStrategy(graph.operators.size(), split);
}

Status check_strategy(const OperatorGraph& graph, const Cluster& cluster,
                      const OperatorStrategy& strategy) {
  if (strategy.size() != graph.operators.size()) {
    return {Code::kInvalidArgument,
            format("strategy of %zu operators (expected %d)", strategy.size(), graph.size())};
  }
  const int devices = cluster.devices();
  for (int number = 0; number < graph.size(); ++number) {
    const GraphOperator& one = graph.at(number);
    const OperatorSplit& split = strategy[static_cast<std::size_t>(number)];
    GW_TRY(check_parts(one, "samples", split.samples, graph.samples, true));
    GW_TRY(check_parts(one, "positions", split.positions, one.positions, one.splits_positions));
    GW_TRY(check_parts(one, "channels", split.channels, one.channels, one.splits_channels));
    if (split.devices.size() != static_cast<std::size_t>(split.parts())) {
      return bad_split(one, format("%zu devices for %d parts (expected as many)",
                                   split.devices.size(), split.parts()));
    }
    for (const int device : split.devices) {
      if (device >= 0 && device < devices) continue;
      return bad_split(one, format("device %d (expected 0 to %d)", device, devices - 1));
    }
  }
  return {};
}

}  // namespace gradwire
