// `gradwire report DIR`: what a sweep or a comparison came to, as one HTML page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/report/page.h"
#include "gradwire/status.h"

namespace gradwire {

Result<int> report_command(const std::vector<std::string>& args);

enum class TableFormat : std::uint8_t { kText, kMarkdown, kJson };
inline TableFormat table_format(bool markdown, bool json) {
  return json ? TableFormat::kJson : markdown ? TableFormat::kMarkdown : TableFormat::kText;
}

// To standard output: the headline, the table and what was expected; of Markdown and JSON nothing
// else. Colours on a terminal alone, and not where NO_COLOR is set.
void print_report(const ReportInput& input, TableFormat form);

// The files that write_report() writes, for people.
inline constexpr char kReportFiles[] = "report.html, report.json, table.csv, table.md";
// Writes them into the directory.
Status write_report(const ReportInput& input, const std::string& directory);

}  // namespace gradwire
