// Ranks by the node that they are on.
#pragma once

#include <span>
#include <vector>

namespace gradwire {

struct Nodes {
  std::vector<std::vector<int>> ranks;  // of each node, ascending; nodes by their first rank
  std::vector<int> node_of;             // by rank: which of them
  std::vector<int> place_of;            // by rank: which of its node's ranks
  int smallest() const;                 // ranks of the smallest node
  bool alike() const;                   // all nodes have as many ranks
};

// keys: any number for each rank, equal on one node.
Nodes nodes_of(std::span<const int> keys);

}  // namespace gradwire
