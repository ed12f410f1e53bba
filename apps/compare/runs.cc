#include "apps/compare/runs.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "apps/commit.h"
#include "apps/compare/child.h"
#include "apps/compare/run_progress.h"
#include "apps/environment.h"
#include "base/hash.h"
#include "base/text.h"
#include "gradwire/version.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// The child's error lines, else its last line: what a user would look for in the log.
std::string words_of(const std::string& log_path) {
  std::ifstream file(log_path);
  std::string line;
  std::string errors;
  std::string last;
  while (std::getline(file, line)) {
    if (line.find("gradwire: error: ") != std::string::npos && errors.empty()) errors = line;
    if (!line.empty()) last = line;
  }
  return errors.empty() ? last : errors;
}

// A rank whose gradients stop being numbers ends the run with an error that says so.
bool says_not_finite(const std::string& log_path) {
  std::ifstream file(log_path);
  for (std::string line; std::getline(file, line);) {
    if (line.find("error: ") != std::string::npos && line.find("finite") != std::string::npos)
      return true;
  }
  return false;
}

struct Job {
  std::size_t row;
  std::uint64_t seed;
  std::vector<std::string> argv;
  std::string metrics;
  std::string log;
};

struct Running {
  Job job;
  Child child;
  Clock::time_point since;
};

// Size and time of a file, or of the files of a folder and of its folders: enough to see that an
// input of a run is another one now.
std::string state_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::vector<std::string> parts;
  const auto note = [&](const fs::path& file) {
    const auto time = fs::last_write_time(file, ignored).time_since_epoch().count();
    parts.push_back(file.string() +
                    format(" %llu %lld",
                           static_cast<unsigned long long>(fs::file_size(file, ignored)),
                           static_cast<long long>(time)));
  };
  if (fs::is_regular_file(path, ignored)) note(path);
  if (fs::is_directory(path, ignored)) {
    fs::recursive_directory_iterator entry(path, ignored);
    for (; entry != fs::recursive_directory_iterator(); entry.increment(ignored)) {
      if (entry.depth() >= 1) entry.disable_recursion_pending();
      if (entry->is_regular_file(ignored)) note(entry->path());
    }
  }
  std::sort(parts.begin(), parts.end());
  return joined(parts);
}

// What decides a run's numbers beside its flags: the variables it reads and the files it names.
std::string surroundings_of(const std::vector<std::string>& argv) {
  std::string text;
  for (const auto& [name, value] :
       environment_with({"GRADWIRE_TRANSPORT", "GRADWIRE_DATA", "UCX_"})) {
    text += " " + name + "=" + value;
    if (name == "GRADWIRE_DATA") text += " " + state_of(value);
  }
  for (std::size_t i = 0; i + 1 < argv.size(); ++i) {
    if (argv[i] == "--data-dir" || argv[i] == "--load-params") text += " " + state_of(argv[i + 1]);
  }
  return text;
}

Job job_of(const Study& study, std::size_t row, std::uint64_t seed, const RunsOptions& options) {
  Job job{.row = row,
          .seed = seed,
          .argv = train_command(study, study.rows[row], seed),
          .metrics = {},
          .log = {}};
  const std::uint64_t key = hash_name(joined(job.argv) + surroundings_of(job.argv) +
                                      " " GRADWIRE_VERSION " " GRADWIRE_COMMIT);
  const std::string stem =
      options.directory + "/runs/" + format("%016llx", static_cast<unsigned long long>(key));
  job.metrics = stem + ".jsonl";
  job.log = stem + ".log";
  std::replace(job.argv.begin(), job.argv.end(), std::string("gradwire"), options.program);
  job.argv.insert(job.argv.end(), {"--metrics", job.metrics});
  return job;
}

// A row's flags with no step: names a wrong flag, an illegal pair or missing data before any time
// is spent.
Status try_row(const Study& study, std::size_t row, const RunsOptions& options) {
  Study alone = study;
  alone.inproc = true;
  alone.ranks = 1;
  StudyRow without_steps = study.rows[row];
  for (TrainFlags* flags : {&alone.train, &without_steps.overrides}) {
    flags->erase("epochs");
    flags->erase("steps");
  }
  without_steps.overrides["steps"] = "0";
  // The data set is looked at once, by the first row; what the others may get wrong shows on a
  // small one, unless they start from a file, which fits its own set alone.
  const bool from_file =
      alone.train.count("load-params") + without_steps.overrides.count("load-params") > 0;
  if (row > 0 && !from_file && without_steps.overrides.count("data") == 0) {
    alone.train.erase("data-dir");
    alone.train["data"] = "digits";
  }
  std::vector<std::string> argv = train_command(alone, without_steps, study.seeds.front());
  std::replace(argv.begin(), argv.end(), std::string("gradwire"), options.program);
  const std::string log = options.directory + "/runs/check.log";
  GW_ASSIGN(Child child, Child::start(argv, log));
  const auto until = Clock::now() + std::chrono::seconds(120);
  for (;;) {
    if (const auto status = child.poll()) {
      if (*status == 0) return {};
      return {Code::kInvalidArgument,
              "row '" + study.rows[row].name + "' cannot run (" + words_of(log) + ")"};
    }
    if (Clock::now() > until)
      return {Code::kTimedOut, "row '" + study.rows[row].name + "': its check took over 120 s"};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Result<RunResult> outcome_of(const Study& study, const Job& job, int status) {
  RunResult run;
  if (std::filesystem::exists(job.metrics)) {
    GW_ASSIGN(run, read_run(job.metrics));
  }
  run.row = job.row;
  run.seed = job.seed;
  if (status == 0 && run.complete) return run;
  run.complete = false;
  run.reason = words_of(job.log);
  run.diverged = run.diverged || says_not_finite(job.log);
  if (run.diverged) return run;
  return Status(Code::kInternal,
                format("row '%s', seed %llu failed with status %d (%s; log: %s)",
                       study.rows[job.row].name.c_str(), static_cast<unsigned long long>(job.seed),
                       status, run.reason.c_str(), job.log.c_str()));
}

// Diverged runs are finished too: they would only diverge again.
bool finished_before(const Job& job) {
  const auto run = read_run(job.metrics);
  return run.has_value() &&
         (run.value().complete || run.value().diverged || says_not_finite(job.log));
}

class Runner {
 public:
  Runner(const Study& study, const RunsOptions& options, std::deque<Job> jobs)
      : study_(study),
        options_(options),
        waiting_(std::move(jobs)),
        progress_(waiting_.size(), options.quiet) {}

  Result<std::vector<RunResult>> run() {
    while (!waiting_.empty() || !running_.empty()) {
      GW_TRY(fill());
      GW_TRY(reap());
      report();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    progress_.finish();
    std::sort(results_.begin(), results_.end(), [this](const RunResult& a, const RunResult& b) {
      return std::pair(a.row, position(a.seed)) < std::pair(b.row, position(b.seed));
    });
    return std::move(results_);
  }

 private:
  std::ptrdiff_t position(std::uint64_t seed) const {
    return std::find(study_.seeds.begin(), study_.seeds.end(), seed) - study_.seeds.begin();
  }

  Status fill() {
    while (!waiting_.empty() && static_cast<int>(running_.size()) < options_.jobs) {
      Job job = std::move(waiting_.front());
      waiting_.pop_front();
      if (!options_.fresh && finished_before(job)) {
        const bool complete = read_run(job.metrics).value().complete;
        GW_TRY(accept(job, complete ? 0 : 1));
        continue;
      }
      std::error_code ignored;  // the run itself says why it cannot write there
      std::filesystem::remove(job.metrics, ignored);
      GW_ASSIGN(Child child, Child::start(job.argv, job.log));
      running_.push_back({std::move(job), std::move(child), Clock::now()});
    }
    return {};
  }

  Status accept(const Job& job, int status) {
    GW_ASSIGN(RunResult run, outcome_of(study_, job, status));
    if (run.complete) progress_.steps_known(run.steps.size());
    results_.push_back(std::move(run));
    progress_.run_done();
    return {};
  }

  Status reap() {
    for (std::size_t i = 0; i < running_.size();) {
      Running& current = running_[i];
      const auto status = current.child.poll();
      if (!status &&
          Clock::now() - current.since > std::chrono::duration<double>(options_.timeout_seconds)) {
        return {Code::kTimedOut, format("row '%s', seed %llu took over %.0f s (--run-timeout)",
                                        study_.rows[current.job.row].name.c_str(),
                                        static_cast<unsigned long long>(current.job.seed),
                                        options_.timeout_seconds)};
      }
      if (!status) {
        ++i;
        continue;
      }
      GW_TRY(accept(current.job, *status));
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return {};
  }

  void report() {
    std::vector<std::string> files;
    std::string what;
    for (const Running& current : running_) {
      files.push_back(current.job.metrics);
      what = study_.rows[current.job.row].name +
             format(", seed %llu", static_cast<unsigned long long>(current.job.seed));
    }
    progress_.show(files, what);
  }

  const Study& study_;
  const RunsOptions& options_;
  std::deque<Job> waiting_;
  std::vector<Running> running_;
  std::vector<RunResult> results_;
  RunProgress progress_;
};

}  // namespace

std::vector<std::string> train_command(const Study& study, const StudyRow& row,
                                       std::uint64_t seed) {
  std::vector<std::string> argv;
  if (!study.inproc) argv = {"gradwire", "run", "-n", std::to_string(study.ranks), "--"};
  argv.insert(argv.end(), {"gradwire", "train"});
  if (study.inproc) argv.insert(argv.end(), {"--inproc", std::to_string(study.ranks)});
  TrainFlags flags = study.train;
  for (const auto& [name, value] : row.overrides) flags[name] = value;
  if (flags.count("steps") != 0 && row.overrides.count("epochs") != 0) flags.erase("steps");
  for (const auto& [name, value] : flags) {
    if (name == "allow-unsafe") {
      if (value == "true") argv.push_back("--allow-unsafe");
      continue;
    }
    argv.insert(argv.end(), {"--" + name, value});
  }
  argv.insert(argv.end(), {"--compressor", row.compressor, "--seed", std::to_string(seed)});
  return argv;
}

Result<std::vector<RunResult>> run_study(const Study& study, const RunsOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.directory + "/runs", error);
  if (error)
    return Status(Code::kInvalidArgument, "cannot make the folder (" + options.directory +
                                              "/runs; " + error.message() + ")");
  std::deque<Job> jobs;
  if (!options.quiet)
    std::fprintf(stderr, "compare: trying the flags of %zu rows\n", study.rows.size());
  for (std::size_t row = 0; row < study.rows.size(); ++row) GW_TRY(try_row(study, row, options));
  // Seeds outermost: after the first third of the time every row has been seen once.
  for (const std::uint64_t seed : study.seeds) {
    for (std::size_t row = 0; row < study.rows.size(); ++row)
      jobs.push_back(job_of(study, row, seed, options));
  }
  return Runner(study, options, std::move(jobs)).run();
}

}  // namespace gradwire
