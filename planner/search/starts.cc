#include "planner/search/starts.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "planner/cluster/alike_devices.h"

namespace gradwire {
namespace {

// How many of `most` devices, in nodes of `a_node`, are worth a try.
std::set<int> worth_a_try(int most, int a_node) {
  constexpr int kEach = 8;
  std::set<int> counts{most};
  for (int n = 1; n <= std::min(most, kEach); ++n) counts.insert(n);
  for (std::int64_t n = 1; n <= most; n *= 2) counts.insert(static_cast<int>(n));
  for (std::int64_t n = a_node; n <= most; n *= 2) counts.insert(static_cast<int>(n));
  return counts;
}

constexpr int kOfAllKinds = -1;

// Devices of the nodes of a kind, ascending.
std::vector<int> devices_of(const Cluster& cluster, const std::vector<int>& kinds, int kind) {
  std::vector<int> devices;
  int next = 0;
  for (std::size_t node = 0; node < cluster.nodes.size(); ++node) {
    for (int i = 0; i < cluster.nodes[node].devices; ++i, ++next) {
      if (kind == kOfAllKinds || kinds[node] == kind) devices.push_back(next);
    }
  }
  return devices;
}

}  // namespace

std::vector<OperatorSplit> sample_divisions(const OperatorGraph& graph, const Cluster& cluster) {
  const std::vector<int> kinds = alike_nodes(cluster);
  std::set<int> each(kinds.begin(), kinds.end());
  each.insert(kOfAllKinds);
  std::vector<OperatorSplit> all{data_parallel(graph, cluster).front()};
  for (const int kind : each) {
    const std::vector<int> devices = devices_of(cluster, kinds, kind);
    const auto most = static_cast<int>(std::min(graph.samples, std::ssize(devices)));
    const auto node = static_cast<std::size_t>(std::max(kind, 0));
    for (const int count : worth_a_try(most, cluster.nodes[node].devices)) {
      OperatorSplit split{count, 1, 1, {devices.begin(), devices.begin() + count}};
      if (std::ranges::find(all, split) == all.end()) all.push_back(std::move(split));
    }
  }
  return all;
}

}  // namespace gradwire
