#include "apps/report/report.h"

#include <cstdio>

#include "apps/flags.h"
#include "apps/report/curves.h"
#include "apps/report/picture.h"
#include "apps/report/table.h"
#include "apps/report/tensorboard.h"
#include "apps/whole_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

struct ReportFlags {
  std::string directory;
  double target = 0;
  bool has_target = false;
  bool csv = false;
  bool png = false;
  std::string tensorboard;
  bool quiet = false;
};

void add_flags(Flags& app, ReportFlags& flags) {
  app.positional("DIR", flags.directory, "output folder of gradwire sweep or compare");
  app.number("target", flags.target, {0, 100},
             "target test accuracy of time to accuracy, in percent",
             "the study's, else one point below the baseline");
  app.toggle("csv", flags.csv, "curves.csv too: loss and accuracy of every row");
  app.toggle("png", flags.png, "report.png too, and a picture of every chart (needs Chromium)");
  app.folder("tensorboard", flags.tensorboard, "output folder for TensorBoard event files");
  app.toggle("quiet", flags.quiet, "no table");
}

Result<int> report(const ReportFlags& flags) {
  GW_ASSIGN(Results results, load_results(flags.directory));
  if (flags.has_target) results.file.plan.target = flags.target;
  const std::vector<CaseSummary> cases = summarise(results);
  const std::vector<RuleOutcome> rules = judge(results.plan(), cases);
  const ReportInput input{.results = results, .cases = cases, .rules = rules};
  std::string written = flags.directory + "/report.html, table.csv";
  GW_TRY(write_report(input, flags.directory));
  if (flags.csv) {
    GW_TRY(write_whole_file(flags.directory + "/curves.csv", csv_curves(results)));
    written += ", curves.csv";
  }
  if (!flags.tensorboard.empty()) {
    GW_TRY(write_tensorboard(results, flags.tensorboard));
    written += ", event files in " + flags.tensorboard;
  }
  if (!flags.quiet) {
    std::printf("%s\n%s%s", results.plan().title.c_str(), text_table(cases).c_str(),
                rule_lines(rules).c_str());
  }
  for (const std::string& line : results.missing)
    std::fprintf(stderr, "gradwire: warning: no result of %s\n", line.c_str());
  if (flags.png) {
    GW_ASSIGN(const std::string browser, find_browser());
    const auto parts = report_parts(input);
    GW_TRY(take_pictures(browser, flags.directory + "/report.html", parts, flags.directory));
    written += ", report.png";
    for (const std::string& part : parts) written += ", " + part + ".png";
  }
  std::printf("%s\n", written.c_str());
  if (results.runs.empty() && results.damaged.empty())
    return Status(Code::kInvalidArgument,
                  format("report: none of %zu run(s) has a result in %s/runs (run gradwire sweep "
                         "--resume)",
                         results.missing.size(), flags.directory.c_str()));
  if (results.damaged.empty()) return 0;
  return Status(
      Code::kInvalidArgument,
      format("report: results of %zu run(s) are incomplete and were left out (the first: %s; "
             "gradwire sweep --resume runs them again)",
             results.damaged.size(), results.damaged.front().c_str()));
}

}  // namespace

Status write_report(const ReportInput& input, const std::string& directory) {
  GW_TRY(write_whole_file(directory + "/table.csv", csv_table(input.cases)));
  return write_whole_file(directory + "/report.html", html_report(input));
}

Result<int> report_command(const std::vector<std::string>& args) {
  ReportFlags flags;
  Flags app(
      "report",
      "Writes report.html, a self-contained page, and table.csv for a sweep or comparison: loss "
      "and accuracy by steps, bytes and time with the range over seeds, and a table.");
  add_flags(app, flags);
  app.example("gradwire report compare-out");
  GW_ASSIGN(const Flags::Outcome outcome, app.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  flags.has_target = app.given("target");
  return report(flags);
}

}  // namespace gradwire
