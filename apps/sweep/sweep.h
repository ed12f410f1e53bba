// `gradwire sweep STUDY.toml --out DIR`: the cross product of a study, resumable.
#pragma once

#include <string>
#include <vector>

#include "apps/sweep/runner.h"
#include "gradwire/status.h"

namespace gradwire {

Result<int> sweep_command(const std::vector<std::string>& args);

// The transport of cases that name none: GRADWIRE_TRANSPORT, else messages as this build has them.
std::string study_transport();

// Where bench/lab is, for a plan that asks for it; "" for one that does not. kUnsupported says what
// is missing: root, the program, or ranks that divide over the hosts.
Result<std::string> lab_program_for(const StudyPlan& plan, const std::string& program);

// The failed runs, one line each with the log, for the end of a sweep's output. "" when none.
std::string failures_text(const StudyPlan& plan, const std::vector<RunState>& states);

}  // namespace gradwire
