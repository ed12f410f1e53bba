// How operators are divided, and where their parts are. Source: SOAP (samples, operators,
// attributes, parameters) of Jia, Zaharia, Aiken, "Beyond data and model parallelism for deep
// neural networks", MLSys 2019, section 4: samples and positions divide the output without its
// parameters, channels divide both, and each part names its device.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/cluster/cluster.h"
#include "planner/graph/operator_graph.h"

namespace gradwire {

// Part (s, p, c) is number (s * positions + p) * channels + c; parts of a dimension of n elements
// are as even as they can be.
struct OperatorSplit {
  int samples = 1;
  int positions = 1;
  int channels = 1;
  std::vector<int> devices = {};  // by part; a device may have several

  int parts() const { return samples * positions * channels; }
  friend bool operator==(const OperatorSplit&, const OperatorSplit&) = default;
};

// By operator.
using OperatorStrategy = std::vector<OperatorSplit>;

// Each group of operators (OperatorGraph::groups()) whole on one device.
OperatorStrategy place_groups(const OperatorGraph& graph, const std::vector<int>& device_of_group);
// Every operator divided by samples among the first devices, as many as there are samples and
// devices: pure data parallelism.
OperatorStrategy data_parallel(const OperatorGraph& graph, const Cluster& cluster);

// kInvalidArgument names the operator: another number of operators, parts below 1, more than there
// are elements or by what the operator is not divided by, another number of devices than parts, a
// device that is not there.
Status check_strategy(const OperatorGraph& graph, const Cluster& cluster,
                      const OperatorStrategy& strategy);

}  // namespace gradwire
