// Which layers are a stage's where a layer does not cost the same on each of them.
#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// As cut_layers(), of `costs[stage][layer]`: the layers of each stage, in order, so that the
// dearest stage costs as little as it can, and of the ways to have that one whose stages are most
// even: the squares of their costs have the least sum. Each stage's costs are of as many layers, 0
// or more, below 2^62 together. Memory for a number of each stage and layer. kInvalidArgument:
// fewer layers than stages, no stage, stages with other layers, costs out of range.
Result<std::vector<Range>> cut_uneven(const std::vector<std::vector<std::int64_t>>& costs);

}  // namespace gradwire
