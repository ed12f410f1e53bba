// `gradwire generate`: text from a language model that was trained.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

Result<int> generate_command(const std::vector<std::string>& args);

}  // namespace gradwire
