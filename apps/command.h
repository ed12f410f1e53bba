// The subcommands of the program. Each lives in a file of its own and is named in main.cc's table,
// nowhere else.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// args: what stands after the subcommand's name. Returns the exit status; an error is printed by
// main() as "gradwire: error: MESSAGE" and ends the program with status 1.
using CommandMain = Result<int> (*)(const std::vector<std::string>& args);

}  // namespace gradwire
