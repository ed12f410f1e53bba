// A sweep or comparison as one self-contained HTML page: charts of loss and accuracy against steps,
// bytes and time (Chart.js, inlined), accuracy against bytes, the table, what was expected, and the
// command that repeats it.
#pragma once

#include <string>
#include <vector>

#include "apps/report/results.h"
#include "apps/report/summary.h"

namespace gradwire {

struct ReportInput {
  const Results& results;
  const std::vector<CaseSummary>& cases;
  const std::vector<RuleOutcome>& rules;
};
std::string html_report(const ReportInput& input);

// The names of the page's parts that can be shown alone, as report.html#only=NAME.
std::vector<std::string> report_parts(const ReportInput& input);

}  // namespace gradwire
