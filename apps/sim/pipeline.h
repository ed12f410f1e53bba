// `gradwire sim pipeline`: schedules of a pipeline side by side, in exact virtual time.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `sim pipeline`.
Result<int> sim_pipeline(const std::vector<std::string>& args);

}  // namespace gradwire
