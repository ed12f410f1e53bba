// Trials before a sweep: every case once without training, so that wrong flags, illegal pairs and
// missing data show before any time is spent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/sweep/run_spec.h"
#include "apps/sweep/runner.h"
#include "apps/sweep/study.h"
#include "gradwire/status.h"

namespace gradwire {

struct CaseCheck {
  bool wanted = false;  // set by the caller: whether to try it
  bool passed = false;
  std::string reason;            // why not, in the trial's words
  std::int64_t steps = 0;        // that a run will take
  std::uint64_t peak_bytes = 0;  // of a process that holds data, model and buffers of all ranks
};

// One entry per case of the plan. Logs go to DIRECTORY/checks.
Status check_cases(const StudyPlan& plan, const SweepOptions& options,
                   std::vector<CaseCheck>& checks);

// `command` with the programs' paths.
RunCommand with_paths(RunCommand command, const SweepOptions& options);

}  // namespace gradwire
