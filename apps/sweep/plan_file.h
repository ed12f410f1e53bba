// A plan as study.json in a sweep's folder: what a report reads, and what was run when and where.
#pragma once

#include <string>
#include <vector>

#include "apps/sweep/study.h"
#include "gradwire/status.h"

namespace gradwire {

struct PlanFile {
  StudyPlan plan;
  std::vector<std::vector<std::string>> runs;  // names of folders in DIRECTORY/runs, case by seed
  std::string command;                         // that a user typed
  std::string environment;                     // machine and versions, one line
  std::string started;                         // UTC
};

Status write_plan_file(const std::string& directory, const PlanFile& file);
// kInvalidArgument says that the folder holds no sweep, or what is wrong with its file.
Result<PlanFile> read_plan_file(const std::string& directory);

}  // namespace gradwire
