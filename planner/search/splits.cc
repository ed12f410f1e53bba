#include "planner/search/splits.h"

#include <numeric>

namespace gradwire {

std::vector<OperatorSplit> operator_splits(const OperatorGraph& graph, int number,
                                           const Cluster& cluster) {
  const GraphOperator& one = graph.at(number);
  const std::int64_t positions = one.splits_positions ? one.positions : 1;
  const std::int64_t channels = one.splits_channels ? one.channels : 1;
  const int devices = cluster.devices();
  std::vector<OperatorSplit> all;
  for (int parts = 1; parts <= devices; ++parts) {
    if (devices % parts != 0) continue;
    for (int first = 0; first < devices; first += parts) {
      for (int by_samples = 1; by_samples <= parts; ++by_samples) {
        if (parts % by_samples != 0 || by_samples > graph.samples) continue;
        const int rest = parts / by_samples;
        for (int by_positions = 1; by_positions <= rest; ++by_positions) {
          if (rest % by_positions != 0 || by_positions > positions) continue;
          if (rest / by_positions > channels) continue;
          OperatorSplit split{by_samples, by_positions, rest / by_positions,
                              std::vector<int>(static_cast<std::size_t>(parts))};
          std::iota(split.devices.begin(), split.devices.end(), first);
          all.push_back(std::move(split));
        }
      }
    }
  }
  return all;
}

}  // namespace gradwire
