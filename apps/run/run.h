// `gradwire run -n N -- PROGRAM ARGS...`: the ranks of a job on this machine.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `run`. The exit status is that of the job (see verdict.h).
Result<int> run_command(const std::vector<std::string>& args);

}  // namespace gradwire
