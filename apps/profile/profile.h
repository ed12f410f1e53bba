// `gradwire profile`: what training takes on this machine, measured once and kept in a file.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/profile/profile.h"

namespace gradwire {

// Errors as of CommandMain.
Result<int> profile_command(const std::vector<std::string>& args);

// This machine now, and this program: what a profile that is measured now says of itself.
ProfileConditions conditions_here();

// Of a file. kInvalidArgument as read_whole_file() and parse_profile().
Result<Profile> read_profile(const std::string& path);
// As read_profile(), of this machine alone: check_same_machine().
Result<Profile> read_own_profile(const std::string& path);

}  // namespace gradwire
