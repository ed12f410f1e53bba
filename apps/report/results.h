// A sweep's or comparison's folder, read back: the plan and what its runs measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/sweep/plan_file.h"
#include "apps/sweep/run_metrics.h"
#include "apps/sweep/run_record.h"
#include "gradwire/status.h"

namespace gradwire {

struct RunResult {
  std::size_t case_index = 0;
  std::uint64_t seed = 0;
  std::string name;  // of its folder in runs/
  RunRecord record;
  RunMetrics metrics;

  bool diverged() const { return record.outcome == RunOutcome::kDiverged; }
};

struct Results {
  PlanFile file;
  std::vector<RunResult> runs;       // complete or diverged, in the order cases x seeds
  std::vector<std::string> missing;  // the others, for people: "row, seed 3: why"
  std::vector<std::string> damaged;  // of those, that ended and have lost some of their metrics

  const StudyPlan& plan() const { return file.plan; }
};

// kInvalidArgument when the folder holds no sweep. A sweep that is not done yet, had failures, or
// lost what a run had measured, gives what there is.
Result<Results> load_results(const std::string& directory);

// The runs of one case, in the order of the seeds.
std::vector<const RunResult*> runs_of(const Results& results, std::size_t case_index);

}  // namespace gradwire
