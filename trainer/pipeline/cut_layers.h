// Which layers are a stage's: a model's layers cut into consecutive runs of nearly equal cost.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// The layers of each stage, in order: none of them empty, all layers in exactly one. The dearest
// stage costs as little as it can, since it sets the pace of a pipeline: m micro-batches take at
// least m times as long as it does. Of the ways to have that, the one whose first stages are
// longest. `costs`: of each layer, in any unit, 0 or more, below 2^62 together.
// kInvalidArgument: fewer layers than stages, no stage, costs out of range.
Result<std::vector<Range>> cut_layers(std::span<const std::int64_t> costs, int stages);

}  // namespace gradwire
