// Placements that are meshes of ranks, which `gradwire train` runs, and the meshes that others are
// compared with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/cluster/cluster.h"
#include "planner/cost/stage_cost.h"
#include "planner/cost/strategy.h"
#include "planner/cost/strategy_cost.h"
#include "planner/graph/operator_graph.h"

namespace gradwire {

// Consecutive operators are a stage; each of dp replicas has its part of the samples and one device
// for each stage.
struct GraphMesh {
  int dp = 1;
  int pp = 1;
  std::vector<int> layers = {};   // operators of each stage, in the graph's order
  std::vector<int> devices = {};  // by rank p * dp + d, as base/mesh.h numbers them with tp = 1

  friend bool operator==(const GraphMesh&, const GraphMesh&) = default;
};

// As `gradwire train --parallel` reads it: "dp=2,pp=3/1f1b[stages=4+4+2]".
std::string to_string(const GraphMesh& mesh);
OperatorStrategy strategy_of(const GraphMesh& mesh);
// Its stages, where rank r is on device r.
std::vector<PlacedStage> stages_of(const GraphMesh& mesh);
// As strategy_of(): each stage's layers by samples on its devices.
OperatorStrategy strategy_of(const std::vector<PlacedStage>& stages);

// The mesh that a strategy is. kUnsupported names the operator, the device or the number by which
// it is none, beside errors of check_graph() and check_strategy(): operators divided otherwise than
// by samples, or among other numbers of devices; stages that are not consecutive operators or share
// a device; samples that do not divide evenly among the replicas; ranks whose numbers do not go
// node by node.
Result<GraphMesh> mesh_of(const OperatorGraph& graph, const Cluster& cluster,
                          const OperatorStrategy& strategy);

// Meshes of the first devices, rank r on device r: dp * pp divides the number of devices, dp the
// samples; stages have nearly equal products (cut_layers()), cut before operators that have
// parameters, so that every stage has some. In ascending order of pp and dp.
Result<std::vector<GraphMesh>> even_meshes(const OperatorGraph& graph, const Cluster& cluster);

struct ComparedMesh {
  GraphMesh mesh = {};
  StrategyTime time = {};
  // Devices that an operator has in both over those that it has in either, a mean over operators.
  // Alike devices may be exchanged (renamed_alike()).
  double agreement = 0;
};

struct NearMeshes {
  ComparedMesh nearest = {};  // agrees most; of these the fastest
  ComparedMesh fastest = {};
};

// Those of even_meshes() beside a strategy, each with the time that `time` gives it. Errors are
// those of `time`.
using MeshTime = std::function<Result<StrategyTime>(const GraphMesh& mesh)>;
Result<NearMeshes> near_meshes(const OperatorGraph& graph, const Cluster& cluster,
                               const OperatorStrategy& strategy, const MeshTime& time);

}  // namespace gradwire
