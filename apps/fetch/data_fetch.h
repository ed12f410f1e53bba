// `gradwire data fetch SET`: data sets for people with a network.
#pragma once

#include <string>
#include <vector>

#include "apps/command.h"
#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `data`. Returns the exit status.
Result<int> data_command(const std::vector<std::string>& args);
const CommandGroup& data_group();

}  // namespace gradwire
