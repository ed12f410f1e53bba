// A search for a mesh as one self-contained HTML page.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/mesh/mesh_search.h"

namespace gradwire {

// What a search found of one of its rows.
struct MeshPage {
  std::string heading;
  const MeshSearchResult& result;
  const MeshAnswer& row;
  const std::vector<MeshAnswer>& near;  // as why_text() has them
};

// The row's time by phase, with the same of those beside it; its step's timeline (the first kind of
// replicas), memory of its ranks by class against the device, time against memory of all rows, and
// the table. Errors as simulate_mesh().
Result<std::string> mesh_page(const MeshProblem& problem, const MeshPage& page);

}  // namespace gradwire
