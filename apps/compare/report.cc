#include "apps/compare/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/compare/chart_js.h"
#include "apps/compare/html_page.h"
#include "apps/compare/report_page.h"
#include "apps/compare/table.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPoints =
    120;  // per curve: each the mean of its window of steps, so that noise does not hide the course

// The mean loss of a row's seeds at each step, smoothed over a window of steps, with the mean
// megabytes and seconds spent until then. Stops where the first seed stops or diverges.
Json curve_of(const std::vector<const RunResult*>& runs) {
  std::size_t steps = runs.empty() ? 0 : runs[0]->steps.size();
  for (const RunResult* run : runs) {
    std::size_t finite = 0;
    while (finite < run->steps.size() && std::isfinite(run->steps[finite].loss)) ++finite;
    steps = std::min(steps, finite);
  }
  const std::size_t window = std::max<std::size_t>(1, steps / kPoints);
  Json points = Json::array();
  double bytes = 0;
  double seconds = 0;
  double loss = 0;
  std::size_t in_window = 0;
  const auto n = static_cast<double>(runs.size());
  for (std::size_t i = 0; i < steps; ++i) {
    for (const RunResult* run : runs) {
      loss += run->steps[i].loss / n;
      bytes += run->steps[i].bytes_sent / n;
      seconds += run->steps[i].step_seconds / n;
    }
    if (++in_window == window || i + 1 == steps) {
      points.push_back({i + 1, bytes / 1e6, seconds, loss / static_cast<double>(in_window)});
      loss = 0;
      in_window = 0;
    }
  }
  return points;
}

Json data_of(const ReportInput& input) {
  Json rows = Json::array();
  for (std::size_t r = 0; r < input.study.rows.size(); ++r) {
    std::vector<const RunResult*> own;
    for (const RunResult& run : input.runs) {
      if (run.row == r) own.push_back(&run);
    }
    rows.push_back({{"name", input.study.rows[r].name}, {"curve", curve_of(own)}});
  }
  return {{"rows", rows}};
}

std::string table_rows(const ReportInput& input) {
  std::string html;
  for (const RowSummary& row : input.rows) {
    html += "<tr><th title=\"" + escaped(row.compressor) + "\">" + escaped(row.name) + "</th><td>" +
            accuracy_text(row) + "</td><td>" + difference_text(input.study, row) + "</td><td>" +
            bytes_text(row.bytes_per_step) + "</td><td>" + bytes_text(row.payload_per_step) +
            "</td>";
    html += "<td>" + ratio_text(row) + "</td>";
    for (const double ms :
         {row.step_ms, row.compute_ms, row.encode_ms, row.wire_ms, row.decode_ms, row.exposed_ms}) {
      html += format("<td>%.2f</td>", ms);
    }
    html += "</tr>\n";
  }
  return html;
}

std::string rules_section(const ReportInput& input) {
  if (input.rules.empty()) return {};
  std::string html =
      "<h2>What was expected</h2><table "
      "class=\"rules\"><tr><th>expectation</th><th>measured</th><th></th></tr>\n";
  for (const RuleOutcome& outcome : input.rules) {
    const AcceptRule& rule = outcome.rule;
    std::string text =
        escaped(rule.text.empty() ? rule.row + (rule.minus.empty() ? "" : " minus " + rule.minus)
                                  : rule.text);
    if (std::isfinite(rule.at_least)) text += format(" ≥ %g", rule.at_least);
    if (std::isfinite(rule.at_most)) text += format(" ≤ %g", rule.at_most);
    html += "<tr><th>" + text + format("</th><td>%.2f</td>", outcome.value) +
            (outcome.accepted ? "<td class=\"yes\">accepted</td></tr>\n"
                              : "<td class=\"no\">refused</td></tr>\n");
  }
  return html + "</table>\n";
}

}  // namespace

std::string html_report(const ReportInput& input) {
  const Study& study = input.study;
  std::string seeds;
  for (const std::uint64_t seed : study.seeds)
    seeds += (seeds.empty() ? "" : ", ") + std::to_string(seed);
  std::string flags;
  for (const auto& [name, value] : study.train)
    if (name != "data-dir") flags += (flags.empty() ? "" : ", ") + name + " " + value;
  return filled(kReportPage,
                {{"title", escaped(study.title)},
                 {"setup", escaped(format("%d %s; ", study.ranks,
                                          study.inproc ? "ranks as threads" : "processes") +
                                   flags + "; seeds " + seeds)},
                 {"command", escaped(input.command)},
                 {"environment", escaped(input.environment)},
                 {"rows", table_rows(input)},
                 {"rules", rules_section(input)},
                 {"data", script_json(data_of(input))},
                 {"chartjs", std::string(kChartJs, kChartJsBytes)}});
}

}  // namespace gradwire
