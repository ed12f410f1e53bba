// What the planner's simulator makes of a data-parallel step.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "gradwire/link_model.h"

namespace gradwire::testing {

// Layers as (elements of their gradient, nanoseconds of their backward), of which the last one's
// gradient comes first; forward takes no time. Nanoseconds of a step of so many replicas, each on a
// node of its own.
std::int64_t planned_replicas(int ranks, const LinkModel& links,
                              const std::vector<std::pair<std::int64_t, std::int64_t>>& layers);

}  // namespace gradwire::testing
