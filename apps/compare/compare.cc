#include "apps/compare/compare.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include "apps/flags.h"
#include "apps/report/report.h"
#include "apps/report/results.h"
#include "apps/report/summary.h"
#include "apps/sweep/run_spec.h"
#include "apps/sweep/runner.h"
#include "apps/sweep/study_file.h"
#include "apps/sweep/sweep.h"
#include "gradwire/registry.h"

namespace gradwire {
namespace {

struct CompareFlags {
  std::string study;
  std::string compressors;
  std::int64_t ranks = 0;
  std::int64_t inproc = 0;
  std::string lab;
  std::int64_t seeds = 0;
  std::string out = "compare-out";
  std::int64_t jobs = 1;
  double run_timeout = 3600;
  bool fresh = false;
  bool markdown = false;
  bool json = false;
  bool quiet = false;
  std::map<std::string, std::string> train;
  std::map<std::string, bool> switches;
};

void add_flags(Flags& app, CompareFlags& flags) {
  app.positional("STUDY.toml", flags.study,
                 "study: [train] flags, [[row]]s, [[accept]] rules (docs/experiments.md)", true);
  app.group("What to compare");
  app.text(
      "compressors", flags.compressors,
      "compressors to add to the study's rows, separated by semicolons (rules of one row in [ ])",
      "none", "SPECS");
  app.integer("ranks", flags.ranks, {1, 4096}, "number of ranks, as processes on this machine",
              "4");
  app.integer("inproc", flags.inproc, {1, 4096}, "number of ranks, as threads of one process",
              "none");
  app.text(
      "lab", flags.lab,
      "network testbeds, HOSTSxRATE separated by commas (4x100mbit,4x1gbit): network namespaces "
      "with shaped links, ranks spread over them; needs root",
      "none", "LABS");
  app.integer("seeds", flags.seeds, {1, 1000}, "number of runs per row (seeds 1, 2, ...)", "1");
  app.group("Runs and output");
  app.folder("out", flags.out, "output folder for the report, results.jsonl and runs/");
  app.integer("jobs", flags.jobs, {1, 256}, "number of concurrent runs");
  app.number("run-timeout", flags.run_timeout, {1, 1e9}, "time limit of one run, in seconds");
  app.toggle("fresh", flags.fresh, "repetition of all runs, also of those finished in --out");
  app.toggle("markdown", flags.markdown, "the table as Markdown on standard output, nothing else");
  app.toggle("json", flags.json, "report.json on standard output, nothing else");
  app.toggle("quiet", flags.quiet, "no progress");
  for (const StudyFlag& flag : study_train_flags()) {
    app.group(flag.facts.group + " (gradwire train; overrides the study's [train])");
    if (flag.is_toggle) {
      app.toggle(flag.name, flags.switches[flag.name], flag.facts.help);
      continue;
    }
    const auto set = [&flags, name = flag.name](const std::string& value) {
      flags.train[name] = value;
      return Status();
    };
    // Where gradients are averaged, plan_of() gives it this value.
    const bool measures = flag.name == "measure-every";
    app.custom(flag.name, flag.facts.placeholder, measures ? "50" : flag.facts.default_text, set,
               flag.facts.help, flag.facts.values);
  }
}

// Ranks are processes then, one on each host where nothing else is said.
Status put_labs(const CompareFlags& flags, Study& study) {
  StudyAxis axis{.key = "lab", .values = {}};
  std::istringstream labs(flags.lab);
  int hosts = 0;
  for (std::string lab; std::getline(labs, lab, ',');) {
    GW_ASSIGN(const LabLinks links, parse_lab(lab));
    if (hosts != 0 && links.hosts != hosts)
      return {Code::kInvalidArgument, "compare: --lab " + flags.lab +
                                          " has different numbers of hosts (expected the same)"};
    hosts = links.hosts;
    axis.values.push_back(lab);
  }
  if (study.transport == "inproc" || study.transport == "shm") study.transport.clear();
  if (flags.ranks == 0) study.ranks = hosts;
  std::erase_if(study.grid, [](const StudyAxis& other) { return other.key == "lab"; });
  study.grid.push_back(std::move(axis));
  return {};
}

Result<Study> study_of(const CompareFlags& flags) {
  Study study;
  if (!flags.study.empty()) {
    GW_ASSIGN(study, load_study(flags.study));
  }
  if (!flags.compressors.empty()) {
    GW_ASSIGN(const std::vector<std::string> specs, parse_spec_list(flags.compressors));
    for (const std::string& spec : specs)
      study.rows.push_back({.name = {}, .compressor = spec, .setting = {}, .overrides = {}});
  }
  if (flags.ranks > 0 || flags.inproc > 0) {
    if (flags.inproc > 0) study.transport = "inproc";
    if (flags.inproc == 0 && study.transport == "inproc") study.transport.clear();
    study.ranks = static_cast<int>(flags.inproc > 0 ? flags.inproc : flags.ranks);
  }
  if (flags.seeds > 0) {
    study.seeds.clear();
    for (std::int64_t seed = 1; seed <= flags.seeds; ++seed)
      study.seeds.push_back(static_cast<std::uint64_t>(seed));
  }
  for (const auto& [name, value] : flags.train) {
    if (name == "epochs") study.train.erase("steps");
    if (name == "steps") study.train.erase("epochs");
    study.train[name] = value;
  }
  for (const auto& [name, seen] : flags.switches) {
    if (seen) study.train[name] = "true";
  }
  if (!flags.lab.empty()) GW_TRY(put_labs(flags, study));
  return study;
}

Result<int> compare(const CompareFlags& flags, const std::vector<std::string>& args) {
  GW_ASSIGN(Study study, study_of(flags));
  GW_ASSIGN(const StudyPlan plan, plan_of(std::move(study), study_transport()));
  SweepOptions options{.label = "compare",
                       .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                       .lab_program = {},
                       .directory = flags.out,
                       .command = "gradwire compare " + shell_text(args),
                       .jobs = static_cast<int>(flags.jobs),
                       .keep = flags.fresh ? Keep::kNone : Keep::kSameBuild,
                       .to_go_on = "the same command continues, and keeps the runs that are done",
                       .any_bad_case_stops = true,
                       .quiet = flags.quiet,
                       .timeout_seconds = flags.run_timeout};
  GW_ASSIGN(options.lab_program, lab_program_for(plan, options.program));
  GW_ASSIGN(const std::vector<RunState> states, run_plan(plan, options));
  GW_ASSIGN(const Results results, load_results(flags.out));
  const std::vector<CaseSummary> cases = summarise(results);
  const std::vector<RuleOutcome> rules = judge(results.plan(), cases);
  const ReportInput input{.results = results, .cases = cases, .rules = rules};
  GW_TRY(write_report(input, flags.out));
  const TableFormat form = table_format(flags.markdown, flags.json);
  print_report(input, form);
  std::fprintf(form == TableFormat::kText ? stdout : stderr, "%s/%s, results.jsonl\n",
               flags.out.c_str(), kReportFiles);
  std::fflush(stdout);
  const std::string failures = failures_text(plan, states);
  std::fprintf(stderr, "%s", failures.c_str());
  const bool accepted = std::all_of(rules.begin(), rules.end(),
                                    [](const RuleOutcome& rule) { return rule.accepted; });
  return accepted && failures.empty() ? 0 : 1;
}

}  // namespace

Result<int> compare_main(const std::vector<std::string>& args) {
  CompareFlags flags;
  Flags app(
      "compare",
      "Trains the same model on the same data under several compressors and seeds, and writes a "
      "table, CSV and report.html. Exits with 1 if a run failed or an [[accept]] rule did not "
      "hold.");
  add_flags(app, flags);
  app.example("gradwire compare --inproc 2 --steps 5 --compressors 'none;topk:ratio=0.01,ef=ef14'");
  GW_ASSIGN(const Flags::Outcome outcome, app.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  for (const char* other : {"ranks", "lab"}) {
    if (app.given("inproc") && app.given(other))
      return Status(Code::kInvalidArgument, std::string("compare: --") + other +
                                                " and --inproc exclude each other (got both)");
  }
  if (flags.markdown && flags.json)
    return Status(Code::kInvalidArgument,
                  "compare: --markdown and --json exclude each other (got both)");
  return compare(flags, args);
}

}  // namespace gradwire
