// `gradwire plan`: what a training run will hold in memory and send, before it runs.
#pragma once

#include <string>
#include <vector>

#include "apps/command.h"
#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `plan`.
Result<int> plan_command(const std::vector<std::string>& args);

// `plan search`, below it.
const CommandGroup& plan_group();

}  // namespace gradwire
