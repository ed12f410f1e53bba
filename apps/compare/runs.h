// Runs a study: one child `gradwire train` for every row and seed, so that a failing row takes
// nothing along.
#pragma once

#include <string>
#include <vector>

#include "apps/compare/results.h"
#include "apps/compare/study.h"
#include "gradwire/status.h"

namespace gradwire {

struct RunsOptions {
  std::string program;            // the gradwire program itself
  std::string directory;          // metrics and logs go to DIRECTORY/runs
  int jobs = 1;                   // runs at a time
  bool fresh = false;             // run again what has finished there before
  bool quiet = false;             // no progress
  double timeout_seconds = 3600;  // of one run; a run that takes longer is ended and fails
};

// In the order rows x seeds. Finished runs of the same flags, inputs and commit are taken from
// DIRECTORY. A run that ends with a non-finite loss or gradient counts as diverged; any other
// failed run is an error that names the row, the seed and the child's own words. Before the first
// run every row's flags are tried with no step.
Result<std::vector<RunResult>> run_study(const Study& study, const RunsOptions& options);

// The command of one run, for reports: what a user types to repeat it.
std::vector<std::string> train_command(const Study& study, const StudyRow& row, std::uint64_t seed);

}  // namespace gradwire
