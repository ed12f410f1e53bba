// `gradwire sim OPERATION`: times of every algorithm on a modelled network.
#pragma once

#include <string>
#include <vector>

#include "apps/command.h"
#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `sim`.
Result<int> sim_command(const std::vector<std::string>& args);
const CommandGroup& sim_group();

}  // namespace gradwire
