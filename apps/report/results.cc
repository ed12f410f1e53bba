#include "apps/report/results.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

std::string label_of(const StudyCase& one, std::uint64_t seed) {
  return "row '" + one.row + "'" + (one.setting.empty() ? "" : " (" + one.setting + ")") +
         format(", seed %llu", static_cast<unsigned long long>(seed));
}

}  // namespace

Result<Results> load_results(const std::string& directory) {
  GW_ASSIGN(PlanFile file, read_plan_file(directory));
  Results results{.file = std::move(file), .runs = {}, .missing = {}, .damaged = {}};
  const StudyPlan& plan = results.plan();
  for (std::size_t i = 0; i < plan.cases.size(); ++i) {
    for (std::size_t s = 0; s < plan.seeds.size(); ++s) {
      const std::string& name = results.file.runs[i][s];
      const std::string folder = directory + "/runs/" + name;
      auto record = read_record(folder);
      if (!record || record->outcome == RunOutcome::kFailed) {
        std::error_code ignored;
        const bool is_there = !record && std::filesystem::exists(folder + "/run.json", ignored);
        results.missing.push_back(label_of(plan.cases[i], plan.seeds[s]) + ": " +
                                  (record     ? record->reason
                                   : is_there ? folder + "/run.json is not a record of a run"
                                              : "not run"));
        if (is_there) results.damaged.push_back(results.missing.back());
        continue;
      }
      auto metrics = read_whole_metrics(folder, *record);
      if (!metrics.has_value()) {
        results.missing.push_back(label_of(plan.cases[i], plan.seeds[s]) + ": " +
                                  std::string(metrics.error().message()));
        results.damaged.push_back(results.missing.back());
        continue;
      }
      results.runs.push_back({.case_index = i,
                              .seed = plan.seeds[s],
                              .name = name,
                              .record = std::move(*record),
                              .metrics = std::move(metrics).value()});
    }
  }
  return results;
}

std::vector<const RunResult*> runs_of(const Results& results, std::size_t case_index) {
  std::vector<const RunResult*> own;
  for (const RunResult& run : results.runs) {
    if (run.case_index == case_index) own.push_back(&run);
  }
  return own;
}

}  // namespace gradwire
