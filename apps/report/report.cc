#include "apps/report/report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "apps/environment.h"
#include "apps/flags.h"
#include "apps/report/curves.h"
#include "apps/report/headline.h"
#include "apps/report/json_report.h"
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
  bool markdown = false;
  bool json = false;
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
  app.toggle("markdown", flags.markdown, "the table as Markdown on standard output, nothing else");
  app.toggle("json", flags.json, "report.json on standard output, nothing else");
  app.toggle("quiet", flags.quiet, "no table");
}

// As no-color.org describes.
bool colours_wanted(std::FILE* out) {
  return isatty(fileno(out)) == 1 && !environment("NO_COLOR") && environment("TERM") != "dumb";
}

// The first of them by name: a sweep that has just begun has hundreds.
void warn_of_missing(const Results& results) {
  constexpr std::size_t kNamed = 5;
  const std::size_t count = results.missing.size();
  for (std::size_t i = 0; i < std::min(count, kNamed); ++i)
    std::fprintf(stderr, "gradwire: warning: no result of %s\n", results.missing[i].c_str());
  if (count > kNamed)
    std::fprintf(stderr,
                 "gradwire: warning: no result of %zu more; %zu of %zu runs have none (gradwire "
                 "sweep --resume runs them)\n",
                 count - kNamed, count, count + results.runs.size());
}

Result<int> report(const ReportFlags& flags) {
  GW_ASSIGN(Results results, load_results(flags.directory));
  if (flags.has_target) results.file.plan.target = flags.target;
  const std::vector<CaseSummary> cases = summarise(results);
  const std::vector<RuleOutcome> rules = judge(results.plan(), cases);
  const ReportInput input{.results = results, .cases = cases, .rules = rules};
  std::string written = flags.directory + "/" + kReportFiles;
  GW_TRY(write_report(input, flags.directory));
  if (flags.csv) {
    GW_TRY(write_whole_file(flags.directory + "/curves.csv", csv_curves(results)));
    written += ", curves.csv";
  }
  if (!flags.tensorboard.empty()) {
    GW_TRY(write_tensorboard(results, flags.tensorboard));
    written += ", event files in " + flags.tensorboard;
  }
  const TableFormat form = table_format(flags.markdown, flags.json);
  if (!flags.quiet || form != TableFormat::kText) print_report(input, form);
  warn_of_missing(results);
  if (flags.png) {
    GW_ASSIGN(const std::string browser, find_browser());
    const auto parts = report_parts(input);
    GW_TRY(take_pictures(browser, flags.directory + "/report.html", parts, flags.directory));
    written += ", report.png";
    for (const std::string& part : parts) written += ", " + part + ".png";
  }
  std::fprintf(form == TableFormat::kText ? stdout : stderr, "%s\n", written.c_str());
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

void print_report(const ReportInput& input, TableFormat form) {
  std::string text;
  switch (form) {
    case TableFormat::kJson: text = json_report(input); break;
    case TableFormat::kMarkdown: text = markdown_table(input.cases); break;
    case TableFormat::kText:
      text = input.results.plan().title + "\n" + headline_of(input.results) + "\n\n" +
             text_table(input.cases, colours_wanted(stdout)) + table_notes(input.cases) +
             rule_lines(input.rules);
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
}

Status write_report(const ReportInput& input, const std::string& directory) {
  GW_TRY(write_whole_file(directory + "/table.md", markdown_table(input.cases)));
  GW_TRY(write_whole_file(directory + "/report.json", json_report(input)));
  GW_TRY(write_whole_file(directory + "/table.csv", csv_table(input.cases)));
  return write_whole_file(directory + "/report.html", html_report(input));
}

Result<int> report_command(const std::vector<std::string>& args) {
  ReportFlags flags;
  Flags app(
      "report",
      "Writes report.html, a self-contained page, report.json, table.csv and table.md for a sweep "
      "or comparison: accuracy with the spread of seeds and test set, bytes, and where the time of "
      "a step goes.");
  add_flags(app, flags);
  app.example("gradwire report compare-out");
  GW_ASSIGN(const Flags::Outcome outcome, app.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (flags.markdown && flags.json)
    return Status(Code::kInvalidArgument,
                  "report: --markdown and --json exclude each other (got both)");
  flags.has_target = app.given("target");
  return report(flags);
}

}  // namespace gradwire
