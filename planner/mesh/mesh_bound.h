// What no step on a mesh can take less than: by it a search leaves out meshes that it need not
// simulate.
#pragma once

#include <cstdint>

#include "planner/mesh/mesh_choice.h"
#include "planner/mesh/mesh_costs.h"

namespace gradwire {

// No schedule of these costs is faster: for each rank of the pipeline the work before its first
// operation can begin, its own operations, and what must follow the last of them; or its
// reductions, of which none begins before a stage's last backward. Without a flush the work of a
// step. Nanoseconds. It may prune, and does not rank.
std::int64_t mesh_bound(const MeshChoice& choice, const MeshCosts& costs);

}  // namespace gradwire
