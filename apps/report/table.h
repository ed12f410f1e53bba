// A sweep or comparison as text: the tables that people read, and table.csv.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/report/summary.h"

namespace gradwire {

// One table per setting, for a terminal; with colours where they are wanted.
std::string text_table(const std::vector<CaseSummary>& cases, bool colours = false);
// As Markdown, with some more columns and the notes.
std::string markdown_table(const std::vector<CaseSummary>& cases);
// What the tables' brackets and ± are, in two lines.
std::string table_notes(const std::vector<CaseSummary>& cases);
std::string rule_lines(const std::vector<RuleOutcome>& rules);
std::string csv_table(const std::vector<CaseSummary>& cases);

// A cell of a CSV file.
std::string csv_quoted(const std::string& text);

// "row", or "row minus other", or what the rule says of itself; with its setting, if there is one.
std::string rule_text(const RuleOutcome& outcome);
// Mean, minimum and maximum over the seeds: "93.06 (92.78–93.33)", "93.06" of one seed, "diverged",
// "91.20 (90.00–92.00) (1 of 3 diverged)"; "–" where nothing has run.
std::string accuracy_text(const CaseSummary& one);
// Of test losses to the baseline's: "+0.0123 (0.0101–0.0144)".
std::string loss_difference_text(const CaseSummary& one);
// To the baseline, with half of its 95 % interval: "-4.20 ± 1.30", "within noise (-0.20 ± 3.70)",
// "-9.00 (one seed)", "baseline"; "–" where there is none.
std::string difference_text(const CaseSummary& one);
// "lower", "within noise", ...: a word for tables and files.
const char* verdict_name(Verdict verdict);
// "1.49 (1.40–1.61)", "1.49" of one value; `number` is printf's form of a double.
std::string range_text(const Spread& spread, const char* number);
// The unit for a column of bytes of which none is above `most`.
struct ByteUnit {
  std::string name;  // "kB"; powers of ten
  double bytes = 1;
};
ByteUnit byte_unit(double most);
// Classes of traffic of which a case sent bytes, where there is more than one of them.
std::vector<std::string> traffic_classes(const std::vector<const CaseSummary*>& cases);
// Of such a class per step; nullopt where the case's runs did not count by class.
std::optional<double> traffic_bytes(const CaseSummary& one, const std::string& name);
// Whether one of the cases has its model in stages.
bool has_stages(const std::vector<const CaseSummary*>& cases);
// The simulated bubble in percent, "14.3"; "–" without stages.
std::string bubble_text(const CaseSummary& one);
// "3.6"; "–" where nothing was sent.
std::string ratio_text(const CaseSummary& one);
// "1.23 MB", "456 B"; powers of ten.
std::string bytes_text(double bytes);
// Seconds: "12.3", "≤ 12.3" where accuracy was only evaluated at the end, "12.3 (2 of 3)" where not
// all seeds got there, "–" where none did; with the seeds' range.
std::string time_to_target_text(const CaseSummary& one);
// Three significant digits; "–" where it was not measured.
std::string measured_text(const std::optional<double>& value);

}  // namespace gradwire
