// Stages whose ranks have room for them, where those of a choice have not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/status.h"
#include "planner/mesh/mesh_choice.h"
#include "planner/mesh/mesh_memory.h"
#include "planner/mesh/mesh_problem.h"

namespace gradwire {

// Divisions of `choice`, each as PipelineSpec::layers, that seem to fit: the one nearest to the
// choice's own stages, towards the one that leaves every rank the same part of its memory, and that
// one, if it is another. None where no division seems to, or there is one stage alone. An estimate,
// by what each rank of `memory` (MeshMemory::of() of the choice) holds of its layers' parameters
// and activations: MeshMemory says whether one really fits. `rooms`: bytes, by rank of the
// pipeline. Errors as MeshModel::work() and cuts().
Result<std::vector<std::vector<int>>> roomy_stages(const MeshProblem& problem,
                                                   const MeshChoice& choice,
                                                   std::span<const MeshRankMemory> memory,
                                                   std::span<const std::int64_t> rooms);

}  // namespace gradwire
