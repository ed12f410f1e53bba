// What a search of divisions starts from.
#pragma once

#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/cost/strategy.h"
#include "planner/graph/operator_graph.h"

namespace gradwire {

// Data parallelism on parts of the cluster: divisions by samples that all operators may have, each
// once. First the one over all devices, as data_parallel() has it. Then, of all nodes and of those
// of each kind (alike_nodes()), those over the first n devices: n is 1 (everything on one device)
// to 8, a power of 2, what a node has times a power of 2, or all, as far as there are samples.
// Source: Jia, Zaharia, Aiken, MLSys 2019, section 6: known strategies are the first candidates.
std::vector<OperatorSplit> sample_divisions(const OperatorGraph& graph, const Cluster& cluster);

}  // namespace gradwire
