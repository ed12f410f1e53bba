#include "apps/report/table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <set>
#include <utility>

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

// What a cell says is worth a colour.
enum class Tone : std::uint8_t { kPlain, kHeading, kDim, kBad, kGood };

Tone tone_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kLower: return Tone::kBad;
    case Verdict::kHigher: return Tone::kGood;
    case Verdict::kWithinNoise:
    case Verdict::kUnknown: return Tone::kDim;
    case Verdict::kNone: break;
  }
  return Tone::kPlain;
}

std::string painted(const std::string& text, Tone tone) {
  const char* code = tone == Tone::kHeading ? "1"
                     : tone == Tone::kDim   ? "2"
                     : tone == Tone::kBad   ? "31"
                     : tone == Tone::kGood  ? "32"
                                            : nullptr;
  return code == nullptr ? text : "\033[" + std::string(code) + "m" + text + "\033[0m";
}

struct Line {
  Cells cells;
  std::vector<Tone> tones;
};

std::string aligned(const std::vector<Line>& lines, bool colours) {
  std::vector<std::size_t> widths(lines[0].cells.size(), 0);
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], width(line.cells[i]));
  }
  std::string text;
  for (const Line& line : lines) {
    std::string row;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string pad(widths[i] - width(line.cells[i]), ' ');
      const std::string cell = colours ? painted(line.cells[i], line.tones[i]) : line.cells[i];
      row += i == 0 ? cell + pad : "  " + pad + cell;
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

using Cases = std::vector<const CaseSummary*>;

std::vector<Cases> by_setting(const std::vector<CaseSummary>& cases) {
  std::vector<Cases> settings;
  for (const CaseSummary& one : cases) {
    if (settings.empty() || settings.back().front()->setting != one.setting)
      settings.emplace_back();
    settings.back().push_back(&one);
  }
  return settings;
}

// A column of the tables for people. The heading may have two lines.
struct Column {
  std::string heading;
  std::function<std::string(const CaseSummary&)> cell;
  bool has_verdict = false;
};

bool of_texts(const Cases& cases) {
  return std::ranges::any_of(cases, [](const CaseSummary* one) { return one->is_text; });
}

std::vector<Column> columns_of(const Cases& cases) {
  std::string baseline = "the baseline";
  double most = 0;
  for (const CaseSummary* one : cases) {
    if (one->is_baseline) baseline = one->name;
    most = std::max(most, one->bytes_per_step);
  }
  const ByteUnit unit = byte_unit(most);
  std::vector<Column> columns{{"compressor", [](const CaseSummary& one) { return one.name; }}};
  if (of_texts(cases)) {
    columns.push_back({"test loss,\nnats", [](const CaseSummary& one) {
                         return range_text(one.final_test_loss, "%.4f");
                       }});
    columns.push_back(
        {"perplexity", [](const CaseSummary& one) { return range_text(one.perplexity, "%.4g"); }});
    columns.push_back({"against " + baseline + ",\nnats", loss_difference_text});
  }
  const std::vector<Column> others{
      {"test accuracy,\n%", accuracy_text},
      {"against " + baseline + ",\npoints", difference_text, true},
      {"sent,\n" + unit.name + "/step",
       [unit](const CaseSummary& one) { return format("%.2f", one.bytes_per_step / unit.bytes); }},
      {"ratio to\nfp32", ratio_text},
      {"step,\nms", [](const CaseSummary& one) { return range_text(one.step, "%.2f"); }},
      {"exposed,\nms", [](const CaseSummary& one) { return range_text(one.exposed, "%.2f"); }}};
  columns.insert(columns.end(), others.begin(), others.end());
  if (has_stages(cases)) columns.push_back({"bubble,\n%", bubble_text});
  return columns;
}

// Markdown has room for more.
std::vector<Column> wide_columns_of(const Cases& cases) {
  std::vector<Column> columns = columns_of(cases);
  std::string target = "target";
  for (const CaseSummary* one : cases) {
    if (one->target) target = format("%.2f %%", *one->target);
  }
  columns.push_back(
      {"computing,\nms", [](const CaseSummary& one) { return range_text(one.compute, "%.2f"); }});
  columns.push_back(
      {"hidden,\nms", [](const CaseSummary& one) { return range_text(one.hidden, "%.2f"); }});
  columns.push_back({"to " + target + ",\ns", time_to_target_text});
  return columns;
}

std::string cell_of(const Column& column, const CaseSummary& one, bool first) {
  return one.runs == 0 && !first ? "–" : column.cell(one);
}

std::string markdown_cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  return out;
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWithinNoise: return "within noise";
    case Verdict::kLower: return "lower";
    case Verdict::kHigher: return "higher";
    case Verdict::kUnknown: return "one seed";
    case Verdict::kNone: break;
  }
  return "none";
}

bool has_stages(const Cases& cases) {
  return std::ranges::any_of(cases, [](const CaseSummary* one) { return !one->parallel.empty(); });
}

std::string bubble_text(const CaseSummary& one) {
  return one.bubble ? format("%.1f", 100 * *one.bubble) : "–";
}

std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string accuracy_text(const CaseSummary& one) {
  if (one.runs == 0) return "–";
  if (one.diverged == one.runs) return "diverged";
  std::string text = range_text(one.accuracy, "%.2f");
  if (one.diverged > 0) text += format(" (%d of %d diverged)", one.diverged, one.runs);
  return text;
}

std::string loss_difference_text(const CaseSummary& one) {
  return one.is_baseline ? "baseline" : range_text(one.loss_difference, "%+.4f");
}

std::string difference_text(const CaseSummary& one) {
  if (one.is_baseline) return "baseline";
  const bool none = one.diverged == one.runs || one.verdict == Verdict::kNone;
  if (none) return "–";
  const std::string noise = one.noise ? format(" ± %.2f", *one.noise) : "";
  if (one.verdict == Verdict::kWithinNoise)
    return format("within noise (%+.2f ± %.2f)", one.difference.mean, *one.noise);
  if (one.verdict == Verdict::kUnknown) return format("%+.2f (one seed)", one.difference.mean);
  return format("%+.2f", one.difference.mean) + noise;
}

std::string range_text(const Spread& spread, const char* number) {
  const auto text = [number](double value) {
    std::array<char, 64> buffer{};
    std::snprintf(buffer.data(), buffer.size(), number, value);
    return std::string(buffer.data());
  };
  if (spread.count == 0) return "–";
  if (spread.count == 1) return text(spread.mean);
  return text(spread.mean) + " (" + text(spread.least) + "–" + text(spread.most) + ")";
}

ByteUnit byte_unit(double most) {
  if (most < 1000) return {"B", 1};
  if (most < 1e6) return {"kB", 1e3};
  if (most < 1e9) return {"MB", 1e6};
  return {"GB", 1e9};
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
  text += range_text(seconds, seconds.mean < 10 ? "%.2f" : "%.1f");
  if (static_cast<int>(seconds.count) < one.runs)
    text += format(" (%zu of %d)", seconds.count, one.runs);
  return text;
}

std::vector<std::string> traffic_classes(const std::vector<const CaseSummary*>& cases) {
  std::set<std::string> classes;
  for (const CaseSummary* one : cases) {
    for (const auto& [name, bytes] : one->traffic_per_step) {
      if (bytes > 0) classes.insert(name);
    }
  }
  if (classes.size() < 2) return {};
  return {classes.begin(), classes.end()};
}

std::optional<double> traffic_bytes(const CaseSummary& one, const std::string& name) {
  if (one.traffic_per_step.empty()) return std::nullopt;
  const auto found = one.traffic_per_step.find(name);
  return found == one.traffic_per_step.end() ? 0 : found->second;
}

std::string measured_text(const std::optional<double>& value) {
  return value ? format("%.3g", *value) : "–";
}

std::string text_table(const std::vector<CaseSummary>& cases, bool colours) {
  std::string text;
  for (const Cases& own : by_setting(cases)) {
    const std::vector<Column> columns = columns_of(own);
    std::vector<Line> lines(2);
    for (const Column& column : columns) {
      const std::size_t end = std::min(column.heading.find('\n'), column.heading.size());
      lines[0].cells.push_back(column.heading.substr(0, end));
      lines[1].cells.push_back(end == column.heading.size() ? "" : column.heading.substr(end + 1));
    }
    lines[0].tones.assign(columns.size(), Tone::kHeading);
    lines[1].tones.assign(columns.size(), Tone::kDim);
    for (const CaseSummary* one : own) {
      Line line;
      for (const Column& column : columns) {
        line.cells.push_back(cell_of(column, *one, line.cells.empty()));
        line.tones.push_back(column.has_verdict ? tone_of(one->verdict) : Tone::kPlain);
      }
      lines.push_back(std::move(line));
    }
    const std::string& setting = own.front()->setting;
    text += (setting.empty() ? "" : "\n" + setting + "\n") + aligned(lines, colours);
  }
  return text;
}

std::string markdown_table(const std::vector<CaseSummary>& cases) {
  std::string text;
  for (const Cases& own : by_setting(cases)) {
    const std::vector<Column> columns = wide_columns_of(own);
    if (!text.empty()) text += "\n";
    if (!own.front()->setting.empty()) text += "### " + own.front()->setting + "\n\n";
    std::string rule = "|";
    text += "|";
    for (const Column& column : columns) {
      text += " " + markdown_cell(column.heading) + " |";
      rule += rule == "|" ? "---|" : "---:|";
    }
    text += "\n" + rule + "\n";
    for (const CaseSummary* one : own) {
      text += "|";
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::string cell = markdown_cell(cell_of(columns[i], *one, i == 0));
        text += i == 0 ? " `" + cell + "` |" : " " + cell + " |";
      }
      text += "\n";
    }
  }
  const auto short_of_target = [](const CaseSummary& one) {
    return one.seconds_to_target.count > 0 &&
           static_cast<int>(one.seconds_to_target.count) < one.runs;
  };
  text += "\n" + table_notes(cases);
  if (std::any_of(cases.begin(), cases.end(), short_of_target))
    text += "Seconds to the accuracy: (2 of 3) where that many of the seeds reached it.\n";
  return text;
}

std::string table_notes(const std::vector<CaseSummary>& cases) {
  std::size_t seeds = 0;
  std::optional<std::int64_t> samples;
  bool within = false;
  for (const CaseSummary& one : cases) {
    seeds = std::max(seeds, one.accuracy.count);
    if (one.test_samples) samples = one.test_samples;
    within = within || one.verdict == Verdict::kWithinNoise;
  }
  std::string text = "One seed: the spread over seeds is not known. ";
  if (seeds > 1)
    text = format("Means over %zu seeds, in brackets the minimum and maximum. ", seeds);
  const std::string of_test_set =
      samples ? format("%lld test samples", static_cast<long long>(*samples)) : "";
  if (seeds > 1 || samples) {
    text += "±: half of a 95 % interval, from " +
            (seeds < 2 ? of_test_set + " alone"
                       : "the seeds" + (samples ? " and " + of_test_set : std::string())) +
            (within ? "; within noise: the interval contains 0.\n" : ".\n");
  } else {
    text += "The noise of a difference is not known.\n";
  }
  Cases pointers;
  for (const CaseSummary& one : cases) pointers.push_back(&one);
  const auto sends = [](const CaseSummary& one) { return one.bytes_per_step > 0; };
  const auto ran = [](const CaseSummary& one) { return one.runs > 0; };
  if (std::any_of(cases.begin(), cases.end(), ran) &&
      std::none_of(cases.begin(), cases.end(), sends))
    text += "Nothing was sent: with one rank there is no exchange, and no ratio.\n";
  return text +
         "Ratio: bytes of an fp32 ring all-reduce over the bytes sent. Exposed: the time that a "
         "step "
         "waits for communication after its computing" +
         (has_stages(pointers)
              ? ", and between its passes for other stages. Bubble: the share of a "
                "step that the schedule leaves idle, simulated, with stages as "
                "dear as their products and messages for nothing.\n"
              : ".\n");
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
      "seconds_to_target,seeds_at_target,nmse,residual_to_gradient,on_front,"
      "accuracy_least,accuracy_most,difference_noise,verdict,test_samples,step_ms_least,"
      "step_ms_most,exposed_ms_least,exposed_ms_most,hidden_ms,other_ms";
  const bool texts = std::ranges::any_of(cases, [](const CaseSummary& one) { return one.is_text; });
  if (texts) text += ",perplexity,test_loss_difference";
  Cases all;
  for (const CaseSummary& one : cases) all.push_back(&one);
  const std::vector<std::string> classes = traffic_classes(all);
  for (const std::string& name : classes) text += "," + name + "_bytes_per_step";
  const bool stages = has_stages(all);
  if (stages) text += ",parallel,bubble_percent,stage_wait_ms";
  text += "\n";
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
            cell(one.residual.value_or(NAN)) + (one.on_front ? ",1" : ",0") +
            cell(one.accuracy.least) + cell(one.accuracy.most) + cell(one.noise.value_or(NAN)) +
            "," + verdict_name(one.verdict) + ",";
    if (one.test_samples) text += format("%lld", static_cast<long long>(*one.test_samples));
    for (const double value : {one.step.least, one.step.most, one.exposed.least, one.exposed.most,
                               one.hidden_ms, one.other_ms})
      text += cell(value);
    if (texts) {
      for (const Spread* spread : {&one.perplexity, &one.loss_difference})
        text += cell(spread->count > 0 ? spread->mean : NAN);
    }
    for (const std::string& name : classes) text += cell(traffic_bytes(one, name).value_or(NAN));
    if (stages) {
      text += "," + csv_quoted(one.parallel) + cell(100 * one.bubble.value_or(NAN)) +
              cell(one.stage_wait_ms.value_or(NAN));
    }
    text += "\n";
  }
  return text;
}

}  // namespace gradwire
