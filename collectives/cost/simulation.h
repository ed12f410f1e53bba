// An algorithm's time by simulation of its schedules, asked for as its closed form is.
#pragma once

#include <string_view>

#include "collectives/cost/model.h"
#include "collectives/cost/simulate.h"

namespace gradwire {

// So many steps take about two seconds.
inline constexpr std::int64_t kMostStepsOfAlgorithm = 1'200'000;

// In the cuts that cost_of() names, whole for algorithms without a closed form. Where there are too
// many steps to simulate one by one, a tensor is made longer by less than one element for each
// rank, so that ranks are alike, if the closed form is the same for both; the errors are
// simulate()'s, kUnsupported for too many steps.
Result<Simulation> simulate_algorithm(const CostQuestion& question, std::string_view algorithm);

}  // namespace gradwire
