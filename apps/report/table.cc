#include "apps/report/table.h"

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

}  // namespace

std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string accuracy_text(const CaseSummary& one) {
  if (one.runs == 0) return "–";
  if (one.diverged == one.runs) return "diverged";
  std::string text = format("%.2f", one.accuracy.mean);
  if (one.runs > 1) text += format(" ± %.2f", one.accuracy.sd);
  if (one.diverged > 0) text += format(" (%d of %d diverged)", one.diverged, one.runs);
  return text;
}

std::string difference_text(const CaseSummary& one) {
  const bool none = one.is_baseline || one.diverged == one.runs || one.difference.count == 0;
  return none ? "–" : format("%+.2f", one.difference.mean);
}

std::string ratio_text(const CaseSummary& one) {
  return one.ratio > 0 ? format("%.1f", one.ratio) : "–";
}

std::string bytes_text(double bytes) {
  if (!std::isfinite(bytes)) return "?";
  if (bytes < 1000) return format("%.0f B", bytes);
  if (bytes < 1e6) return format("%.2f kB", bytes / 1e3);
  if (bytes < 1e9) return format("%.2f MB", bytes / 1e6);
  return format("%.2f GB", bytes / 1e9);
}

std::string time_to_target_text(const CaseSummary& one) {
  const Spread& seconds = one.seconds_to_target;
  if (seconds.count == 0) return "–";
  std::string text = one.evaluated_once ? "≤ " : "";
  text += format(seconds.mean < 10 ? "%.2f s" : "%.1f s", seconds.mean);
  if (static_cast<int>(seconds.count) < one.runs)
    text += format(" (%zu of %d)", seconds.count, one.runs);
  return text;
}

std::string measured_text(const std::optional<double>& value) {
  return value ? format("%.3g", *value) : "–";
}

std::string text_table(const std::vector<CaseSummary>& cases) {
  std::string text;
  for (std::size_t at = 0; at < cases.size();) {
    const std::string setting = cases[at].setting;
    std::vector<Cells> lines{{"compressor", "test accuracy %", "difference", "sent/step",
                              "payload/step", "ratio to fp32", "to target", "NMSE", "ms/step",
                              "compute", "encode", "wire", "decode", "exposed"}};
    for (; at < cases.size() && cases[at].setting == setting; ++at) {
      const CaseSummary& one = cases[at];
      lines.push_back({one.name, accuracy_text(one), difference_text(one),
                       bytes_text(one.bytes_per_step), bytes_text(one.payload_per_step),
                       ratio_text(one), time_to_target_text(one), measured_text(one.nmse),
                       format("%.2f", one.step_ms), format("%.2f", one.compute_ms),
                       format("%.2f", one.encode_ms), format("%.2f", one.wire_ms),
                       format("%.2f", one.decode_ms), format("%.2f", one.exposed_ms)});
    }
    text += (setting.empty() ? "" : "\n" + setting + "\n") + aligned(lines);
  }
  return text;
}

std::string rule_text(const RuleOutcome& outcome) {
  const AcceptRule& rule = outcome.rule;
  std::string text = rule.text;
  if (text.empty()) text = rule.row + (rule.minus.empty() ? "" : " minus " + rule.minus);
  return outcome.setting.empty() ? text : outcome.setting + ": " + text;
}

std::string rule_lines(const std::vector<RuleOutcome>& rules) {
  std::string text;
  for (const RuleOutcome& outcome : rules) {
    const AcceptRule& rule = outcome.rule;
    text += format("%s  %+8.2f  ", outcome.accepted ? "accepted" : "REFUSED ", outcome.value);
    if (std::isfinite(rule.at_least)) text += format(">= %g ", rule.at_least);
    if (std::isfinite(rule.at_most)) text += format("<= %g ", rule.at_most);
    text += " " + rule_text(outcome) + "\n";
  }
  return text;
}

std::string csv_table(const std::vector<CaseSummary>& cases) {
  const auto cell = [](double value) {
    return "," + (std::isfinite(value) ? format("%.6g", value) : std::string());
  };
  std::string text =
      "name,compressor,runs,diverged,accuracy_percent,accuracy_sd,difference_percent,difference_sd,"
      "final_loss,bytes_per_step,payload_bytes_per_step,ratio_to_fp32,step_ms,compute_ms,encode_ms,"
      "wire_ms,decode_ms,exposed_ms,setting,test_loss,total_bytes,ratio_to_bf16,target_percent,"
      "seconds_to_target,seeds_at_target,nmse,residual_to_gradient,on_front\n";
  for (const CaseSummary& one : cases) {
    text += csv_quoted(one.name) + "," + csv_quoted(one.compressor) +
            format(",%d,%d", one.runs, one.diverged);
    for (const double value :
         {one.accuracy.mean, one.accuracy.sd, one.difference.mean, one.difference.sd,
          one.loss.value_or(NAN), one.bytes_per_step, one.payload_per_step, one.ratio, one.step_ms,
          one.compute_ms, one.encode_ms, one.wire_ms, one.decode_ms, one.exposed_ms})
      text += cell(value);
    const Spread& seconds = one.seconds_to_target;
    text += "," + csv_quoted(one.setting);
    for (const double value :
         {one.test_loss.value_or(NAN), one.total_bytes, one.ratio_to_bf16.value_or(NAN),
          one.target.value_or(NAN), seconds.count > 0 ? seconds.mean : NAN})
      text += cell(value);
    text += format(",%zu", seconds.count) + cell(one.nmse.value_or(NAN)) +
            cell(one.residual.value_or(NAN)) + (one.on_front ? ",1\n" : ",0\n");
  }
  return text;
}

}  // namespace gradwire
