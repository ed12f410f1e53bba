// What flags beside `gradwire plan --cluster` say of the mesh: the search decides the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapters/trainer/mesh/parallel_spec.h"
#include "gradwire/status.h"
#include "planner/mesh/mesh_problem.h"
#include "planner/mesh/mesh_search.h"

namespace gradwire {

// Each is as its flag has it; without a value the search chooses.
struct GivenMesh {
  std::optional<ParallelSpec> parallel = {};
  std::optional<std::int64_t> zero = {};  // of --zero, or of `parallel`
  std::optional<std::int64_t> accumulate = {};
  std::optional<std::int64_t> micro_batch = {};
  std::optional<std::string> recompute = {};

  bool any() const { return parallel || zero || accumulate || micro_batch || recompute; }
  // As flags, for messages: "--parallel dp=2,pp=2 --accumulate 8".
  std::string text() const;
};

// kInvalidArgument, with the item: what the search does not price (files, doubling, vertical_sync,
// sequence=on, spatial), another layout than `layout` ("megatron", or "hybrid" of
// images), and a schedule without a flush unless `allow_stale`.
Status check_given(const GivenMesh& given, const std::string& layout, bool allow_stale);

// The problem's meshes that are as given: of a given schedule with as many chunks as it says, and
// with its stages, cut by their products where it says nothing of them. kInvalidArgument: other
// ranks than the cluster has devices, stages that the model does not have, and where there is no
// such mesh, with why.
Result<std::vector<MeshChoice>> given_choices(const MeshProblem& problem, const GivenMesh& given);

}  // namespace gradwire
