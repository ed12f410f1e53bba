// Groups divided among devices so that few bytes are sent: a graph's cut, which knows nothing of
// time.
#pragma once

#include "planner/search/placement_search.h"

namespace gradwire {

// Starts from consecutive cuts of equal cost and from random ones, and moves one group at a time to
// where its readers and inputs are: in a pass each group moves once, the one whose move saves most
// bytes first, also where it costs some, and the best state of the pass is kept. A device has at
// most 1.1 times its share of the products, or one group. The cut with the fewest bytes is
// evaluated, and each start's, as far as the budget goes.
// Source: Fiduccia and Mattheyses, "A linear-time heuristic for improving network partitions", DAC
// 1982, for more than two parts.
class MinCutPlacement final : public PlacementSearch {
 public:
  Status search(SearchRecord& record) override;
};

}  // namespace gradwire
