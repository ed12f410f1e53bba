// An answer of `gradwire plan search` as a mesh: its plan file, or the nearest mesh beside it.
#pragma once

#include <cstdint>
#include <string>

#include "apps/plan/plan_search_graph.h"
#include "gradwire/status.h"
#include "planner/cluster/cluster.h"
#include "planner/cost/strategy_cost.h"
#include "planner/search/graph_mesh.h"

namespace gradwire {

struct SearchAnswer {
  OperatorStrategy strategy = {};
  StrategyTime time = {};          // of a step, by the simulator that `mesh_time` is of, too
  std::int64_t accumulate = 1;     // micro-batches of a step
  std::string other_layouts = {};  // why it is no mesh, where the strategy does not say it
};

struct MeshVerdict {
  GraphMesh mesh = {};   // where `why` is empty
  std::string why = {};  // it is none
  NearMeshes near = {};  // where it is none
};

// Whether the answer is a mesh, of a model one that gradwire train runs; and if not, which ones are
// near. Errors as near_meshes().
Result<MeshVerdict> judge_answer(const GraphQuestion& question, const OperatorGraph& graph,
                                 const Cluster& cluster, const SearchAnswer& answer,
                                 const MeshTime& mesh_time);

std::string verdict_text(const MeshVerdict& verdict);
// A JSON line, "kind": "answer".
std::string verdict_line(const MeshVerdict& verdict);

// The plan file of a mesh of a model, in fp32 under AdamW. Its compressor is left to who runs it
// where gradients are `compressed`. kUnsupported says why there is none: no mesh, a graph that is
// no model of gradwire train.
Result<std::string> search_plan_text(const GraphQuestion& question, const Cluster& cluster,
                                     const SearchAnswer& answer, const MeshVerdict& verdict,
                                     bool compressed);

}  // namespace gradwire
