// Groups divided among devices by METIS.
#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/status.h"
#include "planner/search/cut_graph.h"
#include "planner/search/placement_search.h"

namespace gradwire {

// Multilevel recursive bisection over groups, weighed by their products, cutting few bytes, with
// parts at most 1.1 times as heavy as they should be; from eight seeds, each result once.
// Source: Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning irregular
// graphs", SIAM J. Scientific Computing 1998.
// kUnsupported: METIS was not there when gradwire was built.
class MetisPlacement final : public PlacementSearch {
 public:
  Status search(SearchRecord& record) override;
};

// One of METIS's partitions into `parts` (from 1): by group its part. Declared in every build,
// defined where kHaveMetis holds. kInternal: METIS refuses.
Result<std::vector<int>> metis_parts(const CutGraph& graph, int parts, std::uint64_t seed);

}  // namespace gradwire
