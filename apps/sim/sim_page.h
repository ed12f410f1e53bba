// A simulation as one self-contained HTML page: time against size for every algorithm.
#pragma once

#include <string>
#include <vector>

#include "apps/sim/sim_rows.h"

namespace gradwire {

// command: what a user types to make it again.
std::string sim_page(const CostQuestion& question, const std::vector<SimRow>& rows,
                     const std::string& command);

}  // namespace gradwire
