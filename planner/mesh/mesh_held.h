// What exchanges among the replicas of a mesh keep, as the strategies of adapters/trainer open
// them.
#pragma once

#include <cstdint>

#include "gradwire/status.h"
#include "planner/mesh/mesh_choice.h"
#include "planner/mesh/mesh_exchange.h"
#include "planner/mesh/mesh_problem.h"
#include "trainer/model.h"

namespace gradwire {

// Bytes on the replica that has most, of a rank that holds the model `held`: buffers for gradients
// and payloads, residuals and other state (predict_held()), of gradients, and under ZeRO 1 and 2 of
// parameters on their way back: what a run on hosts counts. Exact where payloads have fixed
// lengths, else at most so many. Under ZeRO 2 and 3 buckets on their way, kBucketsOnTheirWay at
// most, come on top within a step. Errors as of MeshCompression::planned().
Result<std::int64_t> mesh_held(const MeshProblem& problem, const MeshChoice& choice,
                               const MeshCompression& compression, const Model<float>& held);

}  // namespace gradwire
