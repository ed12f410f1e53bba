#include "planner/search/exhaustive.h"

#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "planner/cluster/alike_devices.h"
#include "planner/search/splits.h"

namespace gradwire {
namespace {

// How many there are, as a double: it may be more than fits an integer.
struct StrategyCount {
  double count = 0;
  bool is_all = true;  // false: there are more
};

Status check_count(const StrategyCount& all, const SearchRecord& record) {
  const auto budget = static_cast<double>(record.budget().evaluations);
  if (all.is_all && all.count <= budget) return {};
  return {Code::kInvalidArgument,
          format("%s%s strategies (expected at most the budget of %lld evaluations)",
                 all.is_all ? "" : "more than ", shortest(all.count).c_str(),
                 static_cast<long long>(record.budget().evaluations))};
}

// Used devices of each node, in descending order among alike nodes: what the number of ways to go
// on depends on.
using NodeUses = std::vector<int>;

// Every way to place one more group that stands for others, with how many devices it stands at.
std::map<NodeUses, double> ways_on(const Cluster& cluster, const std::vector<int>& alike,
                                   const NodeUses& uses) {
  std::map<NodeUses, double> next;
  const int used = std::accumulate(uses.begin(), uses.end(), 0);
  if (used > 0) next[uses] += used;
  std::set<int> begun;  // kinds of nodes of which one unused node has been tried
  for (std::size_t node = 0; node < uses.size(); ++node) {
    if (uses[node] == cluster.nodes[node].devices) continue;
    if (uses[node] == 0 && !begun.insert(alike[node]).second) continue;
    // The first of its kind with as many, so that they stay in order.
    std::size_t first = 0;
    while (alike[first] != alike[node] || uses[first] != uses[node]) ++first;
    NodeUses after = uses;
    ++after[first];
    next[after] += 1;
  }
  return next;
}

// Placements of so many groups that stand for others (AlikeDevices), or a part of them where these
// are more than the budget has.
StrategyCount count_placements(const Cluster& cluster, std::size_t groups, double budget) {
  constexpr std::size_t kMostStates = 10'000;
  const std::vector<int> alike = alike_nodes(cluster);
  std::map<NodeUses, double> ways{{NodeUses(cluster.nodes.size()), 1}};
  double all = 1;
  for (std::size_t group = 0; group < groups; ++group) {
    if (all > budget && ways.size() > kMostStates) return {all, false};
    std::map<NodeUses, double> next;
    for (const auto& [uses, count] : ways) {
      for (const auto& [after, more] : ways_on(cluster, alike, uses)) next[after] += count * more;
    }
    ways = std::move(next);
    all = 0;
    for (const auto& [uses, count] : ways) all += count;
  }
  return {all, true};
}

// Calls `visit` with each placement of so many groups that stands for others.
Status each_placement(const Cluster& cluster, std::size_t groups,
                      const std::function<Status(const std::vector<int>& place)>& visit) {
  AlikeDevices used(cluster);
  const int devices = cluster.devices();
  std::vector<int> place;
  int next = 0;  // the device to try for the group behind those of `place`
  while (true) {
    while (next < devices && !used.stands_for_others(next)) ++next;
    if (next < devices) {
      place.push_back(next);
      used.use(next);
      next = 0;
      if (place.size() < groups) continue;
      GW_TRY(visit(place));
    } else if (place.empty()) {
      return {};
    }
    next = place.back() + 1;
    used.stop_using(place.back());
    place.pop_back();
  }
}

}  // namespace

Status ExhaustiveSearch::search(SearchRecord& record) {
  const OperatorGraph& graph = record.cost().graph();
  const Cluster& cluster = record.cost().cluster();
  const std::size_t groups = graph.groups().size();
  const auto budget = static_cast<double>(record.budget().evaluations);
  GW_TRY(check_count(count_placements(cluster, groups, budget), record));
  return each_placement(cluster, groups, [&](const std::vector<int>& place) {
    return record.time(place_groups(graph, place)).error();
  });
}

Status ExhaustiveSplits::search(SearchRecord& record) {
  const OperatorGraph& graph = record.cost().graph();
  std::vector<std::vector<OperatorSplit>> choices;
  double count = 1;
  for (int number = 0; number < graph.size(); ++number) {
    choices.push_back(operator_splits(graph, number, record.cost().cluster()));
    count *= static_cast<double>(choices.back().size());
  }
  GW_TRY(check_count({count, true}, record));
  std::vector<std::size_t> digits(choices.size());
  while (true) {
    OperatorStrategy strategy;
    for (std::size_t i = 0; i < choices.size(); ++i) strategy.push_back(choices[i][digits[i]]);
    GW_TRY(record.time(strategy).error());
    std::size_t digit = digits.size();
    while (true) {
      if (digit == 0) return {};
      --digit;
      if (++digits[digit] < choices[digit].size()) break;
      digits[digit] = 0;
    }
  }
}

}  // namespace gradwire
