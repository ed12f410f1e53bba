// The ways in which one operator may be divided among devices.
#pragma once

#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/cost/strategy.h"
#include "planner/graph/operator_graph.h"

namespace gradwire {

// On n consecutive devices, from one whose number is a multiple of n; n divides the number of
// devices, and is a product of parts of samples, positions and channels, each at most as many as
// there are elements, and 1 where the operator is not divided so. In ascending order of n, first
// device, and parts. The configurations of Jia, Zaharia, Aiken, MLSys 2019, section 4, of which
// each operator has as many parts as devices, and devices are consecutive.
std::vector<OperatorSplit> operator_splits(const OperatorGraph& graph, int number,
                                           const Cluster& cluster);

}  // namespace gradwire
