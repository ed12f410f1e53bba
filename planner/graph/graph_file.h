// Operator graphs as JSON, for people to write:
//
//   {"name": "two layers", "samples": 32, "operators": [
//     {"name": "a", "macs": [3200, 6400], "parameter_bytes": 400, "channels": 10,
//      "splits": ["channels"]},
//     {"name": "b", "macs": [320, 640], "channels": 10, "reads": "own", "inputs": ["a"]}]}
//
//   macs     multiplications with their additions of all samples, forward and backward
//   splits   by what it may be divided, besides samples: "channels", "positions", "inside"
//   reads    "all" (default) or "own": channels of its inputs that an output channel reads
//   others   parameter_bytes, positions, channels, element_bytes, group, layer, as GraphOperator
#pragma once

#include <string>

#include "gradwire/status.h"
#include "planner/graph/operator_graph.h"

namespace gradwire {

// The graph of a text; `name` is the file's, for errors. kInvalidArgument with "NAME:LINE: " in
// front: what is not JSON, unknown keys, values of another kind, and what check_graph() refuses.
Result<OperatorGraph> parse_graph(const std::string& text, const std::string& name);

// The same text again, one line for each operator.
std::string graph_text(const OperatorGraph& graph);

}  // namespace gradwire
