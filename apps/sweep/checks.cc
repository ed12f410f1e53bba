#include "apps/sweep/checks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/machine.h"
#include "apps/sweep/child_pool.h"
#include "apps/whole_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr double kTrialSeconds = 120;

std::string stem(const SweepOptions& options, std::size_t index) {
  return options.directory + format("/checks/%04zu", index);
}

class Observer final : public PoolObserver {
 public:
  Observer(const SweepOptions& options, std::vector<CaseCheck>& checks)
      : options_(options), checks_(checks) {}

  Status starting(std::size_t) override { return {}; }
  Status ended(const PoolResult& result) override {
    CaseCheck& check = checks_[result.index];
    check.passed = result.exit_status == 0;
    check.peak_bytes = result.peak_bytes;
    const std::string at = stem(options_, result.index);
    if (result.timed_out) {
      check.reason = format("its trial took over %.0f s", kTrialSeconds);
    } else if (!check.passed) {
      check.reason = words_of(at + ".txt");
    } else if (const auto text = read_whole_file(at + ".jsonl"); text.has_value()) {
      const auto line = nlohmann::json::parse(text.value(), nullptr, false);
      if (!line.is_object()) return {};
      check.steps = line.value("planned_steps", std::int64_t{0});
      // The check itself takes none of what the run will take.
      check.peak_bytes += line.value("planned_bytes", std::uint64_t{0});
    }
    return {};
  }
  void waiting(const std::vector<std::size_t>&) override {}

 private:
  const SweepOptions& options_;
  std::vector<CaseCheck>& checks_;
};

}  // namespace

RunCommand with_paths(RunCommand command, const SweepOptions& options) {
  std::replace(command.argv.begin(), command.argv.end(), std::string("gradwire"), options.program);
  std::replace(command.argv.begin(), command.argv.end(), std::string("bench/lab"),
               options.lab_program);
  return command;
}

Status check_cases(const StudyPlan& plan, const SweepOptions& options,
                   std::vector<CaseCheck>& checks) {
  std::deque<PoolJob> jobs;
  for (std::size_t i = 0; i < plan.cases.size(); ++i) {
    if (!checks[i].wanted) continue;
    PoolJob job{.index = i,
                .command = with_paths(check_command_of(plan.cases[i], plan.seeds.front()), options),
                .log = stem(options, i) + ".txt",
                .load = {},
                .timeout_seconds = kTrialSeconds};
    job.command.argv.insert(job.command.argv.end(), {"--metrics", stem(options, i) + ".jsonl"});
    jobs.push_back(std::move(job));
  }
  Observer observer(options, checks);
  return run_children(std::move(jobs), Capacity(machine().cores, available_memory(), 0), observer);
}

}  // namespace gradwire
