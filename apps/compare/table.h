// A comparison as text: the table that people read and table.csv.
#pragma once

#include <string>
#include <vector>

#include "apps/compare/results.h"

namespace gradwire {

std::string text_table(const Study& study, const std::vector<RowSummary>& rows);
std::string rule_lines(const std::vector<RuleOutcome>& rules);
std::string csv_table(const std::vector<RowSummary>& rows);

// "1.23 MB", "456 B"; powers of ten.
std::string bytes_text(double bytes);

}  // namespace gradwire
