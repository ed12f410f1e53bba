#include "apps/sweep/runner.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "apps/folder_lock.h"
#include "apps/sweep/checks.h"
#include "apps/sweep/child_pool.h"
#include "apps/sweep/plan_file.h"
#include "apps/sweep/run_metrics.h"
#include "apps/sweep/run_progress.h"
#include "apps/sweep/stop_notice.h"
#include "apps/whole_file.h"
#include "base/counted.h"
#include "base/files.h"
#include "base/text.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// That a sweep which was killed a moment ago may still hold its folder.
constexpr double kSecondsToEnd = 0.2;
constexpr int kOfSignals = 128;  // a status above it: ended by the signal of that number less 128

// A run to be: several cases may be the same one.
struct Run {
  std::size_t case_index;
  std::uint64_t seed;
  Json spec;
  std::string folder;
  std::optional<RunRecord> record;  // once it has one
};

// What was found of earlier sweeps.
struct Found {
  std::size_t kept = 0;
  std::size_t half = 0;
  std::size_t damaged = 0;  // finished, but their metrics are not whole
  std::size_t failed = 0;
  std::size_t other_build = 0;
  std::size_t repeated = 0;  // finished, but all are to be run again
  std::size_t others = 0;    // of another study or other flags
};

Status make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return {};
  return {Code::kInvalidArgument,
          "cannot make the folder '" + path + "' (" + error.message() + ")"};
}

class Sweep final : public PoolObserver {
 public:
  Sweep(const StudyPlan& plan, const SweepOptions& options)
      : plan_(plan), options_(options), machine_(machine()), host_(host_name()) {
    std::map<std::string, std::size_t> known;
    // Seeds outermost: after the first of them every case has been seen once.
    for (const std::uint64_t seed : plan.seeds) {
      for (std::size_t i = 0; i < plan.cases.size(); ++i) {
        Json spec = spec_of(plan.cases[i], seed);
        const std::string folder =
            options.directory + "/runs/" + run_name(plan.cases[i], seed, spec);
        const auto [at, is_new] = known.emplace(spec.dump(), runs_.size());
        if (is_new) runs_.push_back({i, seed, std::move(spec), folder, std::nullopt});
        run_of_[{i, seed}] = at->second;
      }
    }
  }

  Status run() {
    GW_TRY(look_around());
    GW_TRY(write_results());
    GW_TRY(try_cases());
    GW_TRY(run_the_rest());
    return {};
  }

  std::vector<std::vector<std::string>> folder_names() const {
    std::vector<std::vector<std::string>> names(plan_.cases.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      for (const std::uint64_t seed : plan_.seeds)
        names[i].push_back(fs::path(runs_[run_of_.at({i, seed})].folder).filename().string());
    }
    return names;
  }

  std::vector<RunState> states() const {
    std::vector<RunState> states;
    for (std::size_t i = 0; i < plan_.cases.size(); ++i) {
      for (const std::uint64_t seed : plan_.seeds) {
        const Run& run = runs_[run_of_.at({i, seed})];
        RunState state{.case_index = i, .seed = seed, .folder = run.folder, .reason = {}};
        if (run.record) {
          state.outcome = run.record->outcome;
          state.reason = run.record->reason;
        } else {
          state.reason = "cannot run: " + checks_[run.case_index].reason;
        }
        states.push_back(std::move(state));
      }
    }
    return states;
  }

 private:
  // Earlier runs: finished ones are taken over, the others' folders go.
  Status look_around() {
    Found found;
    for (Run& run : runs_) {
      std::error_code error;
      if (!fs::exists(run.folder, error)) continue;
      auto record = read_record(run.folder);
      const bool same_build = record && record->machine.gradwire == machine_.gradwire &&
                              record->machine.commit == machine_.commit;
      const bool finished = record && record->outcome != RunOutcome::kFailed;
      if (!record) {
        ++found.half;
      } else if (!finished) {
        ++found.failed;
      } else if (options_.keep == Keep::kNone) {
        ++found.repeated;
      } else if (!same_build && options_.keep != Keep::kAnyBuild) {
        ++found.other_build;
      } else if (!read_whole_metrics(run.folder, *record).has_value()) {
        ++found.damaged;
      } else {
        ++found.kept;
        run.record = std::move(record);
        continue;
      }
      fs::remove_all(run.folder, error);
      if (error)
        return {Code::kInvalidArgument,
                "cannot remove '" + run.folder + "' (" + error.message() + ")"};
    }
    found.others = other_folders();
    say(found);
    return {};
  }

  // Folders of runs that are none of this study's.
  std::size_t other_folders() const {
    std::set<std::string> own;
    for (const Run& run : runs_) own.insert(fs::path(run.folder).filename().string());
    std::size_t others = 0;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(options_.directory + "/runs", error))
      others += own.count(entry.path().filename().string()) == 0 ? 1 : 0;
    return others;
  }

  void say(const Found& found) const {
    if (options_.quiet) return;
    std::string text = options_.label + ": " + counted(plan_.cases.size(), "case") + ", " +
                       counted(plan_.seeds.size(), "seed") + ", " + counted(runs_.size(), "run");
    const auto add = [&](std::size_t count, const char* what) {
      if (count > 0) text += format("; %zu %s", count, what);
    };
    add(found.kept, "finished before and kept");
    add(found.half, "incomplete, deleted and run again");
    add(found.damaged, "with incomplete metrics, deleted and run again");
    add(found.failed, "failed before, run again");
    add(found.other_build, "of another build, deleted and run again");
    add(found.repeated, "finished before, deleted and run again");
    if (found.others > 0)
      text += format("; %s of other flags kept in %s/runs, not in the report",
                     counted(found.others, "run").c_str(), options_.directory.c_str());
    std::fprintf(stderr, "%s\n", text.c_str());
  }

  Status try_cases() {
    checks_.resize(plan_.cases.size());
    for (const Run& run : runs_) checks_[run.case_index].wanted |= !run.record;
    const auto tried = std::count_if(checks_.begin(), checks_.end(),
                                     [](const CaseCheck& check) { return check.wanted; });
    if (tried > 0 && !options_.quiet)
      std::fprintf(stderr, "%s: checking the flags of %s\n", options_.label.c_str(),
                   counted(tried, "case").c_str());
    GW_TRY(check_cases(plan_, options_, checks_));
    for (std::size_t i = 0; i < checks_.size(); ++i) {
      if (!checks_[i].wanted || checks_[i].passed) continue;
      const StudyCase& one = plan_.cases[i];
      const std::string where = one.setting.empty() ? "" : " (" + one.setting + ")";
      const std::string text =
          "row '" + one.row + "'" + where + " cannot run: " + checks_[i].reason;
      if (options_.any_bad_case_stops) return {Code::kInvalidArgument, text};
      std::fprintf(stderr, "gradwire: warning: %s\n", text.c_str());
    }
    return {};
  }

  RunLoad load_of(const StudyCase& one, std::uint64_t peak) const {
    const auto threads = one.flags.find("threads");
    const auto per_rank = threads == one.flags.end() ? 1 : to_int(threads->second).value_or(1);
    const auto cores = std::min<std::int64_t>(machine_.cores, one.ranks * per_rank);
    const std::uint64_t processes = one.transport == "inproc" ? 1 : one.ranks;
    return {.cores = static_cast<int>(cores), .bytes = peak * processes, .alone = !one.lab.empty()};
  }

  Status run_the_rest() {
    std::deque<PoolJob> jobs;
    std::vector<std::int64_t> steps;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const Run& run = runs_[r];
      const CaseCheck& check = checks_[run.case_index];
      if (run.record || !check.passed) continue;
      const StudyCase& one = plan_.cases[run.case_index];
      PoolJob job{.index = r,
                  .command = with_paths(command_of(one, run.seed), options_),
                  .log = log_path(run.folder),
                  .load = load_of(one, check.peak_bytes),
                  .timeout_seconds = options_.timeout_seconds};
      job.command.argv.insert(job.command.argv.end(), {"--metrics", metrics_path(run.folder)});
      jobs.push_back(std::move(job));
      place_[r] = steps.size();
      steps.push_back(std::max<std::int64_t>(1, check.steps));
    }
    if (jobs.empty()) return {};
    // A tenth of the memory stays free: estimates are of the trials, without training.
    const Capacity capacity(machine_.cores, available_memory() / 10 * 9, options_.jobs);
    progress_.emplace(options_.label, std::move(steps), options_.quiet);
    GW_TRY(run_children(std::move(jobs), capacity, *this));
    progress_->finish();
    return {};
  }

  Status starting(std::size_t index) override { return make_folder(runs_[index].folder); }

  Status ended(const PoolResult& result) override {
    Run& run = runs_[result.index];
    const StudyCase& one = plan_.cases[run.case_index];
    RunRecord record{.row = one.row,
                     .setting = one.setting,
                     .spec = run.spec,
                     .command = shell_text(command_of(one, run.seed)),
                     .machine = machine_,
                     .host = host_,
                     .started = result.started,
                     .seconds = result.seconds,
                     .peak_bytes = result.peak_bytes,
                     .exit_status = result.exit_status,
                     .reason = {}};
    const auto metrics = read_metrics(metrics_path(run.folder));
    const std::string log = log_path(run.folder);
    if (metrics.has_value()) {
      record.steps = static_cast<std::int64_t>(metrics.value().steps.size());
    }
    if (result.timed_out) {
      record.reason = format("took over %.0f s (--run-timeout)", options_.timeout_seconds);
    } else if (result.exit_status == 0 && metrics.has_value() && metrics.value().complete) {
      const bool diverged = metrics.value().diverged;
      record.outcome = diverged ? RunOutcome::kDiverged : RunOutcome::kComplete;
    } else {
      const bool diverged =
          (metrics.has_value() && metrics.value().diverged) || says_not_finite(log);
      // A run that a signal ended is not done, whatever it had come to.
      const bool ended = result.exit_status > kOfSignals;
      record.outcome = diverged && !ended ? RunOutcome::kDiverged : RunOutcome::kFailed;
      record.reason = format("status %d: ", result.exit_status) + words_of(log);
    }
    GW_TRY(write_record(run.folder, record));
    run.record = std::move(record);
    progress_->run_ended(place_.at(result.index));
    return write_result(run);
  }

  void waiting(const std::vector<std::size_t>& running) override {
    if (running.empty()) return;
    std::vector<RunProgress::Followed> followed;
    std::string what;
    for (const std::size_t index : running) {
      const Run& run = runs_[index];
      followed.push_back({place_.at(index), metrics_path(run.folder)});
      what = plan_.cases[run.case_index].row +
             format(", seed %llu", static_cast<unsigned long long>(run.seed));
    }
    progress_->show(followed, what);
  }

  // Starts results.jsonl anew with what was finished before.
  Status write_results() const {
    GW_TRY(open_to_write(results_path()).error().with_context("sweep"));
    for (const Run& run : runs_) {
      if (run.record) GW_TRY(write_result(run));
    }
    return {};
  }

  std::string results_path() const { return options_.directory + "/results.jsonl"; }

  Status write_result(const Run& run) const {
    Json line = to_json(*run.record);
    const auto metrics = read_metrics(metrics_path(run.folder));
    line["totals"] = metrics.has_value() ? metrics.value().totals : Json(nullptr);
    return append_to_file(results_path(),
                          line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  const StudyPlan& plan_;
  const SweepOptions& options_;
  Machine machine_;
  std::string host_;
  std::vector<Run> runs_;
  std::map<std::pair<std::size_t, std::uint64_t>, std::size_t> run_of_;  // (case, seed) -> run
  std::map<std::size_t, std::size_t> place_;                             // run -> in the progress
  std::vector<CaseCheck> checks_;
  std::optional<RunProgress> progress_;
};

}  // namespace

bool holds_runs(const std::string& directory) {
  std::error_code error;
  const fs::path runs = directory + "/runs";
  return fs::is_directory(runs, error) && !fs::is_empty(runs, error);
}

Result<std::vector<RunState>> run_plan(const StudyPlan& plan, const SweepOptions& options) {
  for (const char* part : {"", "/runs", "/checks"}) GW_TRY(make_folder(options.directory + part));
  GW_ASSIGN(const FolderLock lock,
            FolderLock::take(options.directory, "lock", "sweep", kSecondsToEnd));
  const StopNotice notice(options.quiet ? "" : options.label + ": stopped; " + options.to_go_on);
  Sweep sweep(plan, options);
  GW_TRY(write_plan_file(options.directory, {.plan = plan,
                                             .runs = sweep.folder_names(),
                                             .command = options.command,
                                             .environment = machine_line(),
                                             .started = utc_now()}));
  GW_TRY(sweep.run());
  return sweep.states();
}

}  // namespace gradwire
