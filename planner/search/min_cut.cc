#include "planner/search/min_cut.h"

#include <algorithm>
#include <limits>
#include <map>

#include "planner/search/draws.h"
#include "planner/search/simple_placements.h"

namespace gradwire {
namespace {

constexpr double kSlack = 1.1;
constexpr int kStarts = 8;

// Groups, and bytes between them.
class CutGraph {
 public:
  CutGraph(const OperatorGraph& graph, int parts) : parts_(parts), costs_(group_macs(graph)) {
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
    double all = 0;
    for (const std::int64_t cost : costs_) all += static_cast<double>(cost);
    most_ = kSlack * all / parts;
  }

  std::int64_t cut(const std::vector<int>& part_of) const {
    std::int64_t sum = 0;
    for (std::size_t group = 0; group < edges_.size(); ++group) {
      for (const Edge& edge : edges_[group]) {
        if (edge.other > group && part_of[edge.other] != part_of[group]) sum += edge.bytes;
      }
    }
    return sum;
  }

  // Moves groups until a pass saves nothing.
  std::vector<int> improved(std::vector<int> part_of) const {
    while (true) {
      std::vector<int> next = pass(part_of);
      if (cut(next) >= cut(part_of)) return part_of;
      part_of = std::move(next);
    }
  }

 private:
  struct Edge {
    std::size_t other = 0;
    std::int64_t bytes = 0;
  };
  struct Move {
    std::int64_t saved = std::numeric_limits<std::int64_t>::min();
    std::size_t group = 0;
    int to = -1;
  };

  std::vector<int> pass(std::vector<int> part_of) const {
    std::vector<double> load(static_cast<std::size_t>(parts_));
    for (std::size_t group = 0; group < costs_.size(); ++group) {
      load[static_cast<std::size_t>(part_of[group])] += static_cast<double>(costs_[group]);
    }
    std::vector<char> moved(costs_.size());
    std::vector<int> best = part_of;
    std::int64_t saved = 0;
    std::int64_t most_saved = 0;
    while (true) {
      const Move move = best_move(part_of, load, moved);
      if (move.to < 0) return best;
      const auto cost = static_cast<double>(costs_[move.group]);
      load[static_cast<std::size_t>(part_of[move.group])] -= cost;
      load[static_cast<std::size_t>(move.to)] += cost;
      part_of[move.group] = move.to;
      moved[move.group] = 1;
      saved += move.saved;
      if (saved > most_saved) {
        most_saved = saved;
        best = part_of;
      }
    }
  }

  Move best_move(const std::vector<int>& part_of, const std::vector<double>& load,
                 const std::vector<char>& moved) const {
    Move best;
    for (std::size_t group = 0; group < costs_.size(); ++group) {
      if (moved[group] != 0) continue;
      std::vector<std::int64_t> near(static_cast<std::size_t>(parts_));
      for (const Edge& edge : edges_[group]) {
        near[static_cast<std::size_t>(part_of[edge.other])] += edge.bytes;
      }
      const auto here = static_cast<std::size_t>(part_of[group]);
      for (int to = 0; to < parts_; ++to) {
        const auto there = static_cast<std::size_t>(to);
        if (there == here) continue;
        const double after = load[there] + static_cast<double>(costs_[group]);
        if (after > most_ && load[there] > 0) continue;
        const std::int64_t saved = near[there] - near[here];
        if (saved > best.saved) best = {saved, group, to};
      }
    }
    return best;
  }

  int parts_;
  std::vector<std::int64_t> costs_;
  std::vector<std::vector<Edge>> edges_;
  double most_ = 0;
};

}  // namespace

Status MinCutPlacement::search(SearchRecord& record) {
  const OperatorGraph& graph = record.cost().graph();
  const int devices = record.cost().cluster().devices();
  const CutGraph cuts(graph, devices);
  SearchDraws draws(record.budget().seed);
  GW_ASSIGN(std::vector<int> start, equal_cuts(graph, devices));
  std::vector<std::pair<std::int64_t, std::vector<int>>> found;
  for (int number = 0; number < kStarts; ++number) {
    if (number > 0) {
      for (int& part : start) part = draws.below(devices);
    }
    std::vector<int> parts = cuts.improved(start);
    found.emplace_back(cuts.cut(parts), std::move(parts));
  }
  std::ranges::sort(found);
  for (const auto& one : found) {
    if (record.result().evaluations > 0 && record.is_spent()) break;
    GW_TRY(record.time(place_groups(graph, one.second)).error());
  }
  return {};
}

}  // namespace gradwire
