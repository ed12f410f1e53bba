// Placements by REINFORCE.
#pragma once

#include <cstdint>

#include "planner/search/placement_search.h"

namespace gradwire {

// A policy draws a device for each group of operators; its parameters move along
// (baseline - r) / baseline * grad log p, averaged over a round of placements, where r is the
// square root of a step's time. The baseline is a moving average of r, and an entropy term that
// shrinks keeps it from settling early. A policy has settled where more than half of a round are
// one placement; as it may be the best of its neighbourhood alone, a new policy then begins, as far
// as the budget goes. A placement that does not fit is given twice the longest time so far. The
// last evaluations, half of the budget at most, are of placements that need no search: everything
// on one device of each kind of node (alike_nodes()), and cut_by_hand(). No policy learns of them.
// Source: Mirhoseini et al., "Device placement optimization with reinforcement learning", ICML
// 2017, equations 1 to 3 (square root, baseline); Williams, "Simple statistical gradient-following
// algorithms", Machine Learning 1992.

// With a table of logits, [group][device].
class ReinforceSearch final : public PlacementSearch {
 public:
  Status search(SearchRecord& record) override;
};

// With a recurrent policy (SequencePolicy), which is theirs.
class RecurrentReinforceSearch final : public PlacementSearch {
 public:
  Status search(SearchRecord& record) override;
};

}  // namespace gradwire
