// Every placement of groups, and every way to divide operators, where these are few.
#pragma once

#include <cstdint>

#include "planner/search/placement_search.h"

namespace gradwire {

// All placements of groups, one device each. Those that differ by a renaming of alike devices, or
// of alike nodes, are one (AlikeDevices). kInvalidArgument: more than the budget has.
class ExhaustiveSearch final : public PlacementSearch {
 public:
  Status search(SearchRecord& record) override;
};

// All strategies made of operator_splits(); as above.
class ExhaustiveSplits final : public PlacementSearch {
 public:
  Status search(SearchRecord& record) override;
};

}  // namespace gradwire
