// A graph's groups as what partitioners of graphs cut: costs, and bytes between them.
#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/status.h"
#include "planner/graph/operator_graph.h"
#include "planner/search/placement_search.h"

namespace gradwire {

struct CutEdge {
  std::size_t other = 0;   // group
  std::int64_t bytes = 0;  // outputs there, and their gradients back
};

// Immutable.
class CutGraph {
 public:
  explicit CutGraph(const OperatorGraph& graph);

  // Products of each group, forward and back.
  const std::vector<std::int64_t>& costs() const { return costs_; }
  // Of each group, by the other one; both ends have it.
  const std::vector<std::vector<CutEdge>>& edges() const { return edges_; }
  // Bytes between parts.
  std::int64_t cut(const std::vector<int>& part_of) const;

 private:
  std::vector<std::int64_t> costs_;
  std::vector<std::vector<CutEdge>> edges_;
};

// Evaluates each cut once, the one with fewest bytes first, as far as the budget goes; at least
// one. Errors as SearchRecord::time().
Status try_cuts(const CutGraph& graph, std::vector<std::vector<int>> cuts, SearchRecord& record);

}  // namespace gradwire
