// What `gradwire plan search` shows of its answers.
#pragma once

#include <string>

#include "gradwire/status.h"
#include "planner/cost/stage_cost.h"
#include "planner/cost/strategy_cost.h"
#include "planner/search/placement_search.h"

namespace gradwire {

// "best: 1.234 ms", the points at which it got better, and what each device does.
Result<std::string> placement_text(SimulatedCost& cost, const SearchResult& result);
// One JSON line for each point ("kind": "point"), operator ("operator") and device ("device").
Result<std::string> placement_lines(SimulatedCost& cost, const SearchResult& result);
// A line for each stage, what was minimised, and the simulated step.
std::string stages_text(const StageCost& cost, const StagePartition& found, std::int64_t simulated);
// One JSON line for each stage ("kind": "stage"), and one of the whole ("partition").
std::string stages_lines(const StageCost& cost, const StagePartition& found,
                         std::int64_t simulated);

}  // namespace gradwire
