#include "apps/compare/table.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace gradwire {
namespace {

using Cells = std::vector<std::string>;

// Columns as a terminal shows them: bytes that continue a UTF-8 character take no room.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string aligned(const std::vector<Cells>& lines) {
  std::vector<std::size_t> widths(lines[0].size(), 0);
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], width(line[i]));
  }
  std::string text;
  for (const Cells& line : lines) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string pad(widths[i] - width(line[i]), ' ');
      row += i == 0 ? line[i] + pad : "  " + pad + line[i];
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace

std::string accuracy_text(const RowSummary& row) {
  if (row.diverged == row.runs && row.runs > 0) return "diverged";
  std::string text = format("%.2f", row.accuracy_mean);
  if (row.runs > 1) text += format(" ± %.2f", row.accuracy_sd);
  if (row.diverged > 0) text += format(" (%d of %d diverged)", row.diverged, row.runs);
  return text;
}

std::string difference_text(const Study& study, const RowSummary& row) {
  const bool no_accuracy = row.diverged == row.runs && row.runs > 0;
  return row.name == study.baseline || no_accuracy ? "–" : format("%+.2f", row.difference_mean);
}

std::string ratio_text(const RowSummary& row) {
  return row.ratio > 0 ? format("%.1f", row.ratio) : "–";
}

std::string bytes_text(double bytes) {
  if (!std::isfinite(bytes)) return "?";
  if (bytes < 1000) return format("%.0f B", bytes);
  if (bytes < 1e6) return format("%.2f kB", bytes / 1e3);
  return format("%.2f MB", bytes / 1e6);
}

std::string text_table(const Study& study, const std::vector<RowSummary>& rows) {
  std::vector<Cells> lines{{"compressor", "test accuracy %", "difference", "sent/step",
                            "payload/step", "ratio to fp32", "ms/step", "compute", "encode", "wire",
                            "decode", "exposed"}};
  for (const RowSummary& row : rows) {
    lines.push_back({row.name, accuracy_text(row), difference_text(study, row),
                     bytes_text(row.bytes_per_step), bytes_text(row.payload_per_step),
                     ratio_text(row), format("%.2f", row.step_ms), format("%.2f", row.compute_ms),
                     format("%.2f", row.encode_ms), format("%.2f", row.wire_ms),
                     format("%.2f", row.decode_ms), format("%.2f", row.exposed_ms)});
  }
  return aligned(lines);
}

std::string rule_lines(const std::vector<RuleOutcome>& rules) {
  std::string text;
  for (const RuleOutcome& outcome : rules) {
    const AcceptRule& rule = outcome.rule;
    text += format("%s  %+8.2f  ", outcome.accepted ? "accepted" : "REFUSED ", outcome.value);
    if (std::isfinite(rule.at_least)) text += format(">= %g ", rule.at_least);
    if (std::isfinite(rule.at_most)) text += format("<= %g ", rule.at_most);
    text += " " +
            (rule.text.empty() ? rule.row + (rule.minus.empty() ? "" : " minus " + rule.minus)
                               : rule.text) +
            "\n";
  }
  return text;
}

std::string csv_table(const std::vector<RowSummary>& rows) {
  std::string text =
      "name,compressor,runs,diverged,accuracy_percent,accuracy_sd,difference_percent,difference_sd,"
      "final_loss,bytes_per_step,"
      "payload_bytes_per_step,ratio_to_fp32,step_ms,compute_ms,encode_ms,wire_ms,decode_ms,exposed_"
      "ms\n";
  for (const RowSummary& row : rows) {
    text +=
        quoted(row.name) + "," + quoted(row.compressor) + format(",%d,%d", row.runs, row.diverged);
    for (const double value :
         {row.accuracy_mean, row.accuracy_sd, row.difference_mean, row.difference_sd, row.loss,
          row.bytes_per_step, row.payload_per_step, row.ratio, row.step_ms, row.compute_ms,
          row.encode_ms, row.wire_ms, row.decode_ms, row.exposed_ms}) {
      text += "," + (std::isfinite(value) ? format("%.6g", value) : std::string());
    }
    text += "\n";
  }
  return text;
}

}  // namespace gradwire
