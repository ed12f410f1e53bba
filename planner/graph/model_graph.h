// A model's layers as an operator graph.
#pragma once

#include <cstdint>

#include "gradwire/status.h"
#include "planner/graph/operator_graph.h"
#include "trainer/model.h"

namespace gradwire {

// One operator for each layer, each reading the one before it, for a step of `samples` samples:
// products forward and back, parameters and outputs in fp32. Linear layers and convolutions may be
// divided by output channels, convolutions and element-wise layers by positions, attention and mlp
// halves of a block inside; element-wise layers read their own channels.
// kInvalidArgument: no layer, samples below 1.
Result<OperatorGraph> model_graph(const Model<float>& model, std::int64_t samples);

}  // namespace gradwire
