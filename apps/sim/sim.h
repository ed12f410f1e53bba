// `gradwire sim OPERATION`: what every algorithm takes on a network that is not there.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `sim`.
Result<int> sim_command(const std::vector<std::string>& args);

}  // namespace gradwire
