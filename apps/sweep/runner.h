// Runs a plan: one child `gradwire train` (or a job of them) for every case and seed, so that a
// failing run takes nothing along.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/sweep/run_record.h"
#include "apps/sweep/study.h"
#include "gradwire/status.h"

namespace gradwire {

// Which finished runs of the same specification are taken as they are.
enum class Keep : std::uint8_t {
  kNone,       // all are run again
  kSameBuild,  // of this version and commit
  kAnyBuild
};

struct SweepOptions {
  std::string label = "sweep";  // stands first in what it prints
  std::string program;          // the gradwire program itself
  std::string lab_program;      // bench/lab, where cases ask for one
  std::string directory;
  std::string command;  // that a user typed, for the report
  int jobs = 0;         // runs at once; 0: what the machine's cores and memory bear
  Keep keep = Keep::kSameBuild;
  std::string to_go_on;             // what continues it, said when a signal ends it
  bool any_bad_case_stops = false;  // else its runs count as failed, and the rest runs
  bool quiet = false;
  double timeout_seconds = 86400;  // of one run; a run that takes longer is ended and has failed
};

// What became of a case under a seed.
struct RunState {
  std::size_t case_index = 0;
  std::uint64_t seed = 0;
  std::string folder;  // of its record; cases that are the same runs share one
  RunOutcome outcome = RunOutcome::kFailed;
  std::string reason;
};

// Fills DIRECTORY: study.json (the plan), runs/NAME (see run_record.h), checks/ (what the trials
// said), results.jsonl (a line per run: its record, and its totals as "totals"). Half runs found
// there are thrown away, failed ones tried again. Before the first run every case is tried without
// training. Results stand in the order cases x seeds. Errors: the folder cannot be written or is
// being written by another sweep, or, as the options say, a case that cannot run.
Result<std::vector<RunState>> run_plan(const StudyPlan& plan, const SweepOptions& options);

// Whether a sweep has left runs, whole or half, in the folder.
bool holds_runs(const std::string& directory);

}  // namespace gradwire
