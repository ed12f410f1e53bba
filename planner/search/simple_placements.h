// Placements that others are compared with.
#pragma once

#include "planner/search/placement_search.h"

namespace gradwire {

// Everything on one device, whichever is best.
class OneDevicePlacement final : public PlacementSearch {
 public:
  Status search(SearchRecord& record) override;
};

// By device a layer of the network, or runs of consecutive layers as long as any other or one
// longer, where operators have layers; else consecutive cuts of groups of nearly equal cost.
// Source: Mirhoseini et al., ICML 2017, section 4.2.
Result<OperatorStrategy> cut_by_hand(const OperatorGraph& graph, int devices);

// What people do: a layer of the network per device where operators have layers, else consecutive
// cuts of equal cost; or one device, if that is better.
// Source: Mirhoseini et al., ICML 2017, section 4.2.
class ExpertPlacement final : public PlacementSearch {
 public:
  Status search(SearchRecord& record) override;
};

// Groups on devices drawn evenly, as many times as the budget has.
class RandomPlacement final : public PlacementSearch {
 public:
  Status search(SearchRecord& record) override;
};

// Products forward and back of each group of operators.
std::vector<std::int64_t> group_macs(const OperatorGraph& graph);
// By group: `parts` consecutive runs of groups, the dearest as cheap as it can be; fewer where
// there are fewer groups.
Result<std::vector<int>> equal_cuts(const OperatorGraph& graph, int parts);

}  // namespace gradwire
