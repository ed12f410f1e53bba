// A comparison as one self-contained HTML page: charts of the loss against steps, bytes sent and
// time (Chart.js, inlined), the table, the rules, and the command that repeats it.
#pragma once

#include <string>
#include <vector>

#include "apps/compare/results.h"

namespace gradwire {

struct ReportInput {
  const Study& study;
  const std::vector<RunResult>& runs;
  const std::vector<RowSummary>& rows;
  const std::vector<RuleOutcome>& rules;
  std::string command;      // that made it
  std::string environment;  // machine and versions, one line
};
std::string html_report(const ReportInput& input);

}  // namespace gradwire
