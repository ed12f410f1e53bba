// A profile as tables for people.
#pragma once

#include <string>

#include "planner/profile/profile.h"

namespace gradwire {

// Where and when it was measured, then a table of each kind of entry that it has.
std::string profile_table(const Profile& profile);

}  // namespace gradwire
