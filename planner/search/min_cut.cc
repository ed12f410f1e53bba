#include "planner/search/min_cut.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/search/cut_graph.h"
#include "planner/search/draws.h"
#include "planner/search/simple_placements.h"

namespace gradwire {
namespace {

constexpr double kSlack = 1.1;
constexpr int kStarts = 8;

// Improves a cut by moves of groups.
class CutMoves {
 public:
  CutMoves(const CutGraph& graph, int parts)
      : graph_(graph), parts_(parts), costs_(graph.costs()), edges_(graph.edges()) {
    double all = 0;
    for (const std::int64_t cost : costs_) all += static_cast<double>(cost);
    most_ = kSlack * all / parts;
  }

  // Moves groups until a pass saves nothing.
  std::vector<int> improved(std::vector<int> part_of) const {
    while (true) {
      std::vector<int> next = pass(part_of);
      if (graph_.cut(next) >= graph_.cut(part_of)) return part_of;
      part_of = std::move(next);
    }
  }

 private:
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
      for (const CutEdge& edge : edges_[group]) {
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

  const CutGraph& graph_;
  int parts_;
  const std::vector<std::int64_t>& costs_;
  const std::vector<std::vector<CutEdge>>& edges_;
  double most_ = 0;
};

}  // namespace

Status MinCutPlacement::search(SearchRecord& record) {
  const OperatorGraph& graph = record.cost().graph();
  const int devices = record.cost().cluster().devices();
  const CutGraph cuts(graph);
  const CutMoves moves(cuts, devices);
  SearchDraws draws(record.budget().seed);
  GW_ASSIGN(std::vector<int> start, equal_cuts(graph, devices));
  std::vector<std::vector<int>> found;
  for (int number = 0; number < kStarts; ++number) {
    if (number > 0) {
      for (int& part : start) part = draws.below(devices);
    }
    found.push_back(moves.improved(start));
  }
  return try_cuts(cuts, std::move(found), record);
}

}  // namespace gradwire
