#include "apps/sweep/sweep.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "apps/environment.h"
#include "apps/flags.h"
#include "apps/job.h"
#include "apps/machine.h"
#include "apps/sweep/plan_file.h"
#include "apps/sweep/run_spec.h"
#include "apps/sweep/study_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;

struct SweepFlags {
  std::string study;
  std::string out;
  std::int64_t jobs = 0;
  double run_timeout = 86400;
  bool resume = false;
  bool any_build = false;
  bool fresh = false;
  bool list = false;
  bool quiet = false;
};

void add_flags(Flags& app, SweepFlags& flags) {
  app.positional(
      "STUDY.toml", flags.study,
      "study: [train] flags, a [grid] of choices or [[row]]s, seeds (docs/experiments.md)");
  app.folder("out", flags.out, "output folder for study.json, results.jsonl and runs/", "required");
  app.toggle("resume", flags.resume,
             "continuation: finished runs in --out are kept, missing and failed ones are run");
  app.toggle("any-build", flags.any_build, "with --resume: runs of other builds are kept too");
  app.toggle("fresh", flags.fresh, "repetition of all runs, also of those finished in --out");
  app.integer("jobs", flags.jobs, {1, 256}, "number of concurrent runs",
              "as many as cores and memory allow");
  app.number("run-timeout", flags.run_timeout, {1, 1e9}, "time limit of one run, in seconds");
  app.toggle("list", flags.list, "list of the runs' commands; nothing is run");
  app.toggle("quiet", flags.quiet, "no progress");
  app.example(
      "printf '[train]\\nsteps = 5\\n[grid]\\ncompressor = [\"none\", \"signsgd\"]\\n' > "
      "study.toml && "
      "gradwire sweep study.toml --list");
}

Status check_flags(const SweepFlags& flags) {
  const auto refuse = [](const std::string& what) {
    return Status(Code::kInvalidArgument, "sweep: " + what);
  };
  if (flags.out.empty() && !flags.list) return refuse("--out is missing (expected a folder)");
  if (flags.resume && flags.fresh)
    return refuse("--resume and --fresh exclude each other (got both)");
  if (flags.any_build && !flags.resume) return refuse("--any-build requires --resume");
  if (!flags.list && !flags.resume && !flags.fresh && holds_runs(flags.out))
    return refuse("'" + flags.out +
                  "' already holds runs (use --resume to continue, --fresh to run " +
                  "all again, or another folder)");
  return {};
}

void print_commands(const StudyPlan& plan) {
  for (const std::uint64_t seed : plan.seeds) {
    for (const StudyCase& one : plan.cases)
      std::printf("%s\n", shell_text(command_of(one, seed)).c_str());
  }
}

std::string outcome_line(const std::vector<RunState>& states, const std::string& out) {
  const auto count = [&](RunOutcome outcome) {
    return std::count_if(states.begin(), states.end(),
                         [&](const RunState& state) { return state.outcome == outcome; });
  };
  return format("%td complete, %td diverged, %td failed; see gradwire report %s",
                count(RunOutcome::kComplete), count(RunOutcome::kDiverged),
                count(RunOutcome::kFailed), out.c_str());
}

Result<int> sweep(const SweepFlags& flags, const std::vector<std::string>& args) {
  GW_ASSIGN(Study study, load_study(flags.study));
  GW_ASSIGN(const StudyPlan plan, plan_of(std::move(study), study_transport()));
  if (flags.list) {
    print_commands(plan);
    return 0;
  }
  SweepOptions options{
      .program = fs::read_symlink("/proc/self/exe").string(),
      .lab_program = {},
      .directory = flags.out,
      .command = "gradwire sweep " + shell_text(args),
      .jobs = static_cast<int>(flags.jobs),
      .keep = flags.fresh       ? Keep::kNone
              : flags.any_build ? Keep::kAnyBuild
                                : Keep::kSameBuild,
      .to_go_on = "gradwire sweep " + flags.study + " --out " + flags.out + " --resume continues",
      .quiet = flags.quiet,
      .timeout_seconds = flags.run_timeout};
  GW_ASSIGN(options.lab_program, lab_program_for(plan, options.program));
  GW_ASSIGN(const std::vector<RunState> states, run_plan(plan, options));
  const std::string failures = failures_text(plan, states);
  std::fflush(stdout);
  std::fprintf(stderr, "%s", failures.c_str());
  std::printf("%s\n", outcome_line(states, flags.out).c_str());
  return failures.empty() ? 0 : 1;
}

}  // namespace

std::string study_transport() {
  return environment("GRADWIRE_TRANSPORT").value_or(messages_of("auto"));
}

Result<std::string> lab_program_for(const StudyPlan& plan, const std::string& program) {
  bool wanted = false;
  for (const StudyCase& one : plan.cases) {
    if (one.lab.empty()) continue;
    wanted = true;
  }
  if (!wanted) return std::string();
  if (::geteuid() != 0)
    return Status(
        Code::kUnsupported,
        format("the network testbed (--lab) needs root for network namespaces (got user id "
               "%u, expected 0)",
               static_cast<unsigned>(::geteuid())));
  const fs::path beside = fs::path(program).parent_path() / "../../bench/lab";
  std::error_code error;
  const std::string path =
      environment("GRADWIRE_LAB").value_or(fs::weakly_canonical(beside, error).string());
  if (!fs::is_regular_file(path, error))
    return Status(Code::kUnsupported, "no network testbed at '" + path +
                                          "' (expected bench/lab of the sources; set GRADWIRE_LAB "
                                          "to its path)");
  return path;
}

std::string failures_text(const StudyPlan& plan, const std::vector<RunState>& states) {
  std::string text;
  for (const RunState& state : states) {
    if (state.outcome != RunOutcome::kFailed) continue;
    const StudyCase& one = plan.cases[state.case_index];
    text += "failed: row '" + one.row + "'" +
            (one.setting.empty() ? "" : " (" + one.setting + ")") +
            format(", seed %llu: ", static_cast<unsigned long long>(state.seed)) + state.reason +
            "; " + log_path(state.folder) + "\n";
  }
  return text;
}

Result<int> sweep_command(const std::vector<std::string>& args) {
  SweepFlags flags;
  Flags app("sweep",
            "Runs all combinations of a study: models, data, compressors, ranks, seeds and every "
            "flag its [grid] lists. --resume continues a sweep that was stopped.");
  add_flags(app, flags);
  GW_ASSIGN(const Flags::Outcome outcome, app.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_TRY(check_flags(flags));
  return sweep(flags, args);
}

}  // namespace gradwire
