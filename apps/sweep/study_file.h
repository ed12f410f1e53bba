// Studies as TOML.
#pragma once

#include <string>

#include "apps/sweep/study.h"
#include "gradwire/status.h"

namespace gradwire {

// STUDY.toml: keys title, expected, target, ranks | inproc, transport, lab, seeds (a count or a
// list), baseline; a table [train] of training flags; a table [grid] of lists; an array [[row]] of
// name, compressor, setting and overrides; an array [[accept]] of text, row, minus, setting,
// metric, at_least, at_most. Errors name file, line and key.
Result<Study> load_study(const std::string& path);

}  // namespace gradwire
