// A search for a mesh as one self-contained HTML page.
#pragma once

#include <string>

#include "gradwire/status.h"
#include "planner/mesh/mesh_search.h"

namespace gradwire {

// Memory of `row`'s ranks by class against the device, its step's timeline (the first kind of
// replicas), time against memory of all rows, and the table. Errors as simulate_mesh().
Result<std::string> mesh_page(const std::string& heading, const MeshProblem& problem,
                              const MeshSearchResult& result, const MeshAnswer& row);

}  // namespace gradwire
