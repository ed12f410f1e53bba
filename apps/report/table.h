// A sweep or comparison as text: the tables that people read, and table.csv.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/report/summary.h"

namespace gradwire {

// One table per setting.
std::string text_table(const std::vector<CaseSummary>& cases);
std::string rule_lines(const std::vector<RuleOutcome>& rules);
std::string csv_table(const std::vector<CaseSummary>& cases);

// A cell of a CSV file.
std::string csv_quoted(const std::string& text);

// "row", or "row minus other", or what the rule says of itself; with its setting, if there is one.
std::string rule_text(const RuleOutcome& outcome);
// "93.06 ± 0.12", "diverged", "91.20 (1 of 3 diverged)"; "–" where nothing has run.
std::string accuracy_text(const CaseSummary& one);
// To the baseline, "+0.10"; "–" for the baseline itself and where there is none.
std::string difference_text(const CaseSummary& one);
// "3.6"; "–" where nothing was sent.
std::string ratio_text(const CaseSummary& one);
// "1.23 MB", "456 B"; powers of ten.
std::string bytes_text(double bytes);
// "12.3 s", "≤ 12.3 s" where accuracy was only looked at in the end, "12.3 s (2 of 3)" where not
// all seeds got there, "–" where none did.
std::string time_to_target_text(const CaseSummary& one);
// Three significant digits; "–" where it was not measured.
std::string measured_text(const std::optional<double>& value);

}  // namespace gradwire
