// What `gradwire inspect` can show.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `inspect`. All print to standard output and return the exit status.
Result<int> inspect_command(const std::vector<std::string>& args);

// `inspect compressors [--json]`: every method of the registry, its keys and its claims.
Result<int> inspect_compressors(const std::vector<std::string>& args);

}  // namespace gradwire
