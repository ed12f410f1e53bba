// `gradwire train`: one training run.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `train`. Returns the exit status.
Result<int> train_command(const std::vector<std::string>& args);

}  // namespace gradwire
