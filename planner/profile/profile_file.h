// Profiles as JSON, written and read back:
//
//   {"profile": 1, "host": "node1", "processor": "...", "cores": 2, "threads": 1, "kernel": "...",
//    "build": "...", "date": "2026-01-31T12:00:00Z",
//    "layers": [
//     {"name": "mlp fc0", "input": [1, 8, 8], "output": [128, 1, 1], "parameters": 8320, ...}],
//    "products": [...], "optimizers": [...], "codecs": [...], "links": [...]}
//
// The members of an entry are called as those of its struct (profile.h); all must be there.
#pragma once

#include <string>

#include "gradwire/status.h"
#include "planner/profile/profile.h"

namespace gradwire {

// A text that parse_profile() reads as an equal profile, to the bit.
std::string profile_text(const Profile& profile);

// One object a line, for programs: `kind` (machine, layer, product, optimizer, codec or link), and
// the members.
std::string profile_lines(const Profile& profile);

// `name` is the file's, for errors. kInvalidArgument with "NAME:LINE: " in front: what is not JSON,
// another version than 1, keys that are missing, unknown or stand twice, values of another kind or
// out of range.
Result<Profile> parse_profile(const std::string& text, const std::string& name);

}  // namespace gradwire
