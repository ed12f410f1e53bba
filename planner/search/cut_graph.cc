#include "planner/search/cut_graph.h"

#include <algorithm>
#include <map>
#include <utility>

#include "planner/search/simple_placements.h"

namespace gradwire {

CutGraph::CutGraph(const OperatorGraph& graph) : costs_(group_macs(graph)) {
  const auto groups = graph.groups();
  std::vector<std::size_t> group_of(graph.operators.size());
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const int one : groups[group]) group_of[static_cast<std::size_t>(one)] = group;
  }
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> bytes;
  for (int reader = 0; reader < graph.size(); ++reader) {
    for (const int input : graph.at(reader).inputs) {
      const std::size_t a = group_of[static_cast<std::size_t>(input)];
      const std::size_t b = group_of[static_cast<std::size_t>(reader)];
      // There and back.
      if (a != b) bytes[std::minmax(a, b)] += 2 * graph.output_bytes(input);
    }
  }
  edges_.resize(groups.size());
  for (const auto& [ends, sent] : bytes) {
    edges_[ends.first].push_back({ends.second, sent});
    edges_[ends.second].push_back({ends.first, sent});
  }
}

std::int64_t CutGraph::cut(const std::vector<int>& part_of) const {
  std::int64_t sum = 0;
  for (std::size_t group = 0; group < edges_.size(); ++group) {
    for (const CutEdge& edge : edges_[group]) {
      if (edge.other > group && part_of[edge.other] != part_of[group]) sum += edge.bytes;
    }
  }
  return sum;
}

Status try_cuts(const CutGraph& graph, std::vector<std::vector<int>> cuts, SearchRecord& record) {
  std::ranges::sort(cuts);
  cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
  std::ranges::stable_sort(cuts, {}, [&](const auto& one) { return graph.cut(one); });
  for (const std::vector<int>& one : cuts) {
    if (record.result().evaluations > 0 && record.is_spent()) break;
    GW_TRY(record.time(place_groups(record.cost().graph(), one)).error());
  }
  return {};
}

}  // namespace gradwire
