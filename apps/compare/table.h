// A comparison as text: the table that people read and table.csv.
#pragma once

#include <string>
#include <vector>

#include "apps/compare/results.h"

namespace gradwire {

std::string text_table(const Study& study, const std::vector<RowSummary>& rows);
std::string rule_lines(const std::vector<RuleOutcome>& rules);
std::string csv_table(const std::vector<RowSummary>& rows);

// "93.06 ± 0.12", "diverged", "91.20 (1 of 3 diverged)".
std::string accuracy_text(const RowSummary& row);
// To the baseline, "+0.10"; "–" for the baseline itself and where there is no accuracy.
std::string difference_text(const Study& study, const RowSummary& row);
// "3.6"; "–" where nothing was sent.
std::string ratio_text(const RowSummary& row);
// "1.23 MB", "456 B"; powers of ten.
std::string bytes_text(double bytes);

}  // namespace gradwire
