// `gradwire doctor`: what this build, this machine and this job offer, what was chosen, and why.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `doctor`.
Result<int> doctor_command(const std::vector<std::string>& args);

}  // namespace gradwire
