#include "apps/compare/compare.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/compare/report.h"
#include "apps/compare/results.h"
#include "apps/compare/runs.h"
#include "apps/compare/study.h"
#include "apps/compare/table.h"
#include "apps/flags.h"
#include "apps/machine.h"
#include "base/text.h"
#include "gradwire/registry.h"

namespace gradwire {
namespace {

struct CompareFlags {
  std::string study;
  std::string compressors;
  std::int64_t ranks = 0;
  std::int64_t inproc = 0;
  std::int64_t seeds = 0;
  std::string out = "compare-out";
  std::int64_t jobs = 1;
  double run_timeout = 3600;
  bool fresh = false;
  bool quiet = false;
  std::map<std::string, std::string> train;
  bool allow_unsafe = false;
};

void add_flags(Flags& app, CompareFlags& flags) {
  app.positional("STUDY.toml", flags.study,
                 "a study: [train] flags, [[row]]s, [[accept]] rules (see docs/studies)", true);
  app.group("What to compare");
  app.text("compressors", flags.compressors,
           "specs separated by ';' (rules of one row in [ ]), after the study's rows");
  app.integer("ranks", flags.ranks, {1, 4096}, "UCX processes on this machine", "4");
  app.integer("inproc", flags.inproc, {1, 4096}, "ranks as threads of one process instead", "off");
  app.integer("seeds", flags.seeds, {1, 1000}, "runs per row, with seeds 1, 2, ...", "1");
  app.group("How to run it");
  app.text("out", flags.out, "folder for report.html, table.csv, metrics.jsonl and runs/");
  app.integer("jobs", flags.jobs, {1, 256}, "runs at a time");
  app.number("run-timeout", flags.run_timeout, {1, 1e9}, "seconds after which one run is ended");
  app.toggle("fresh", flags.fresh, "repeat runs that have finished in --out before");
  app.toggle("quiet", flags.quiet, "no progress");
  app.group(
      "Training, as in gradwire train; they win over the study's [train], its rows over both");
  for (const std::string& name : study_train_flags()) {
    if (name == "allow-unsafe") {
      app.toggle(name, flags.allow_unsafe, "run pairs that are known to fail");
      continue;
    }
    const auto set = [&flags, name](const std::string& value) {
      flags.train[name] = value;
      return Status();
    };
    app.custom(name, "VALUE", "train's", set, "see gradwire train --help");
  }
}

Result<Study> study_of(const CompareFlags& flags) {
  Study study;
  if (!flags.study.empty()) {
    GW_ASSIGN(study, load_study(flags.study));
  }
  if (!flags.compressors.empty()) {
    GW_ASSIGN(const std::vector<std::string> specs, parse_spec_list(flags.compressors));
    for (const std::string& spec : specs)
      study.rows.push_back({.name = {}, .compressor = spec, .overrides = {}});
  }
  if (flags.ranks > 0 || flags.inproc > 0) {
    study.inproc = flags.inproc > 0;
    study.ranks = static_cast<int>(study.inproc ? flags.inproc : flags.ranks);
  }
  if (flags.seeds > 0) {
    study.seeds.clear();
    for (std::int64_t seed = 1; seed <= flags.seeds; ++seed)
      study.seeds.push_back(static_cast<std::uint64_t>(seed));
  }
  for (const auto& [name, value] : flags.train) study.train[name] = value;
  if (flags.allow_unsafe) study.train["allow-unsafe"] = "true";
  GW_TRY(complete_study(study));
  return study;
}

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return {Code::kInvalidArgument, "cannot write (" + path + ")"};
  return {};
}

std::string metrics_text(const Study& study, const std::vector<RunResult>& runs) {
  std::string text;
  for (const RunResult& run : runs) {
    for (const StepMetrics& step : run.steps) {
      nlohmann::ordered_json line{{"row", study.rows[run.row].name},
                                  {"seed", run.seed},
                                  {"step", step.step},
                                  {"loss", step.loss},
                                  {"bytes_sent", step.bytes_sent},
                                  {"payload_bytes", step.payload_bytes},
                                  {"dense_bytes", step.dense_bytes},
                                  {"step_seconds", step.step_seconds},
                                  {"compute_seconds", step.compute_seconds},
                                  {"encode_seconds", step.encode_seconds},
                                  {"wire_seconds", step.wire_seconds},
                                  {"decode_seconds", step.decode_seconds},
                                  {"exposed_seconds", step.exposed_seconds}};
      if (step.accuracy) line["accuracy"] = *step.accuracy;
      text += line.dump() + "\n";
    }
  }
  return text;
}

std::string command_text(const std::vector<std::string>& args) {
  std::string text = "gradwire compare";
  for (const std::string& arg : args) {
    const bool plain = arg.find_first_of(" ;'\"*[]()&|<>$\\") == std::string::npos && !arg.empty();
    text += plain ? " " + arg : " '" + arg + "'";
  }
  return text;
}

Result<int> compare(const CompareFlags& flags, const std::vector<std::string>& args) {
  GW_ASSIGN(const Study study, study_of(flags));
  GW_ASSIGN(const std::vector<RunResult> runs,
            run_study(study, {.program = std::filesystem::read_symlink("/proc/self/exe").string(),
                              .directory = flags.out,
                              .jobs = static_cast<int>(flags.jobs),
                              .fresh = flags.fresh,
                              .quiet = flags.quiet,
                              .timeout_seconds = flags.run_timeout}));
  const std::vector<RowSummary> rows = summarise(study, runs);
  const std::vector<RuleOutcome> rules = judge(study, rows);
  std::printf("%s\n%s%s", study.title.c_str(), text_table(study, rows).c_str(),
              rule_lines(rules).c_str());
  GW_TRY(write_text(flags.out + "/table.csv", csv_table(rows)));
  GW_TRY(write_text(flags.out + "/metrics.jsonl", metrics_text(study, runs)));
  GW_TRY(write_text(flags.out + "/report.html", html_report({.study = study,
                                                             .runs = runs,
                                                             .rows = rows,
                                                             .rules = rules,
                                                             .command = command_text(args),
                                                             .environment = machine_line()})));
  std::printf("%s/report.html, table.csv, metrics.jsonl\n", flags.out.c_str());
  for (const RuleOutcome& outcome : rules) {
    if (!outcome.accepted) return 1;
  }
  return 0;
}

}  // namespace

Result<int> compare_main(const std::vector<std::string>& args) {
  CompareFlags flags;
  Flags app(
      "compare",
      "The same model and data under several compressors and seeds: table, CSV and report.html.");
  add_flags(app, flags);
  GW_ASSIGN(const Flags::Outcome outcome, app.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (app.given("ranks") && app.given("inproc")) {
    return Status(Code::kInvalidArgument,
                  "compare: --ranks and --inproc exclude one another (both given; one wanted)");
  }
  return compare(flags, args);
}

}  // namespace gradwire
