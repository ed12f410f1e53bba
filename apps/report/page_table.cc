#include "apps/report/page_table.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "apps/report/html_page.h"
#include "apps/report/table.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Cases = std::vector<const CaseSummary*>;

// A column of the table; groups have a heading of their own.
struct PageColumn {
  const char* group;
  std::string heading;
  std::function<std::string(const CaseSummary&)> cell;
};

std::string exposed_text(const CaseSummary& one) {
  std::string text = format("%.2f", one.exposed_ms);
  if (one.step_ms > 0) text += format(", %.0f %%", 100 * one.exposed_ms / one.step_ms);
  if (one.exposed.count > 1)
    text += format("<small>(%.2f–%.2f)</small>", one.exposed.least, one.exposed.most);
  return text;
}

// The mean, and the range over the seeds below it.
std::function<std::string(const CaseSummary&)> ranged(Spread CaseSummary::*field,
                                                      const char* number, double unit = 1) {
  return [field, number, unit](const CaseSummary& one) {
    Spread spread = one.*field;
    for (double* value : {&spread.mean, &spread.least, &spread.most}) *value /= unit;
    return spread.least == spread.most
               ? range_text({.mean = spread.mean, .count = std::min<std::size_t>(spread.count, 1)},
                            number)
               : range_text(spread, number);
  };
}

std::string difference_cell(const CaseSummary& one) {
  const std::string text = difference_text(one);
  switch (one.verdict) {
    case Verdict::kWithinNoise:
      return format("<span class=\"even\">within noise</span><small>%+.2f ± %.2f</small>",
                    one.difference.mean, *one.noise);
    case Verdict::kLower: return "<span class=\"no\">" + text + "</span>";
    case Verdict::kHigher: return "<span class=\"yes\">" + text + "</span>";
    case Verdict::kUnknown:
    case Verdict::kNone: break;
  }
  return text;
}

// A figure in a unit that is the same for the whole column.
std::function<std::string(const CaseSummary&)> bytes_in(const ByteUnit& unit,
                                                        double CaseSummary::*field) {
  return [unit, field](const CaseSummary& one) { return format("%.2f", one.*field / unit.bytes); };
}

ByteUnit unit_of(const Cases& cases, double CaseSummary::*field) {
  double most = 0;
  for (const CaseSummary* one : cases) most = std::max(most, one->*field);
  return byte_unit(most);
}

void add_bytes(const Cases& cases, std::vector<PageColumn>& columns) {
  const ByteUnit step = unit_of(cases, &CaseSummary::bytes_per_step);
  const ByteUnit all = unit_of(cases, &CaseSummary::total_bytes);
  columns.push_back({"bytes of rank 0", "sent per<br>step, " + step.name,
                     bytes_in(step, &CaseSummary::bytes_per_step)});
  columns.push_back({"bytes of rank 0", "payload per<br>step, " + step.name,
                     bytes_in(step, &CaseSummary::payload_per_step)});
  columns.push_back(
      {"bytes of rank 0", "sent in<br>all, " + all.name, bytes_in(all, &CaseSummary::total_bytes)});
  columns.push_back({"bytes of rank 0", "ratio to<br>fp32", ratio_text});
  const auto has_bf16 = [](const CaseSummary* one) { return one->ratio_to_bf16.has_value(); };
  if (std::any_of(cases.begin(), cases.end(), has_bf16))
    columns.push_back({"bytes of rank 0", "ratio to<br>bf16", [](const CaseSummary& one) {
                         return one.ratio_to_bf16 ? format("%.1f", *one.ratio_to_bf16) : "–";
                       }});
}

void add_stages(const Cases& cases, std::vector<PageColumn>& columns) {
  if (!has_stages(cases)) return;
  columns.push_back({"stages", "parallel", [](const CaseSummary& one) {
                       return one.parallel.empty() ? "–" : breakable(one.parallel);
                     }});
  columns.push_back({"stages", "simulated<br>bubble, %", bubble_text});
  columns.push_back({"stages", "wait for<br>stages, ms", [](const CaseSummary& one) {
                       return one.stage_wait_ms ? format("%.2f", *one.stage_wait_ms) : "–";
                     }});
}

// Each class in a unit of its own: statistics are a few bytes beside gradients.
void add_traffic(const Cases& cases, std::vector<PageColumn>& columns) {
  for (const std::string& name : traffic_classes(cases)) {
    double most = 0;
    for (const CaseSummary* one : cases)
      most = std::max(most, traffic_bytes(*one, name).value_or(0));
    const ByteUnit unit = byte_unit(most);
    columns.push_back({"sent per step, by class", name + ",<br>" + unit.name,
                       [name, unit](const CaseSummary& one) {
                         const std::optional<double> bytes = traffic_bytes(one, name);
                         return bytes ? format("%.2f", *bytes / unit.bytes) : "–";
                       }});
  }
}

void add_times(const Cases& cases, std::vector<PageColumn>& columns) {
  std::string target = "target";
  for (const CaseSummary* one : cases) {
    if (one->target) target = format("%.2f %%", *one->target);
  }
  const auto ms = [](double CaseSummary::*field) {
    return [field](const CaseSummary& one) { return format("%.2f", one.*field); };
  };
  columns.push_back({"time", "step,<br>ms", ranged(&CaseSummary::step, "%.2f")});
  columns.push_back({"time", "exposed, ms,<br>of the step", exposed_text});
  columns.push_back({"time", "to " + target + ",<br>s", time_to_target_text});
  columns.push_back({"time", "computing,<br>ms", ranged(&CaseSummary::compute, "%.2f")});
  columns.push_back({"time", "hidden,<br>ms", ms(&CaseSummary::hidden_ms)});
  columns.push_back({"time", "encode,<br>ms", ms(&CaseSummary::encode_ms)});
  columns.push_back({"time", "wire,<br>ms", ms(&CaseSummary::wire_ms)});
  columns.push_back({"time", "decode,<br>ms", ms(&CaseSummary::decode_ms)});
}

std::vector<PageColumn> page_columns_of(const Cases& cases) {
  const auto any = [&](auto has) {
    return std::any_of(cases.begin(), cases.end(),
                       [&](const CaseSummary* one) { return has(*one); });
  };
  std::string baseline = "the baseline";
  for (const CaseSummary* one : cases) {
    if (one->is_baseline) baseline = breakable(one->name);
  }
  std::vector<PageColumn> columns;
  const bool texts = any([](const CaseSummary& one) { return one.is_text; });
  if (texts) {
    columns.push_back(
        {"model", "test loss,<br>nats", ranged(&CaseSummary::final_test_loss, "%.4f")});
    columns.push_back({"model", "perplexity", ranged(&CaseSummary::perplexity, "%.4g")});
    columns.push_back({"model", "against " + baseline + ",<br>nats", loss_difference_text});
  }
  columns.push_back({"model", "test<br>accuracy, %", accuracy_text});
  columns.push_back({"model", "against " + baseline + ",<br>percent points", difference_cell});
  columns.push_back({"model", "training<br>loss", ranged(&CaseSummary::final_loss, "%.4f")});
  if (!texts && any([](const CaseSummary& one) { return one.test_loss.has_value(); }))
    columns.push_back({"model", "test<br>loss", ranged(&CaseSummary::final_test_loss, "%.4f")});
  add_stages(cases, columns);  // how rows differ, in a narrow page, too
  add_bytes(cases, columns);
  add_times(cases, columns);
  if (any([](const CaseSummary& one) { return one.nmse.has_value(); }))
    columns.push_back(
        {"error", "NMSE", [](const CaseSummary& one) { return measured_text(one.nmse); }});
  if (any([](const CaseSummary& one) { return one.residual.has_value(); }))
    columns.push_back({"error", "residual /<br>gradient",
                       [](const CaseSummary& one) { return measured_text(one.residual); }});
  add_traffic(cases, columns);  // last, where a narrow page scrolls
  return columns;
}

// "93.06 (92.78–93.33)": the range goes on a line of its own.
std::string with_range_below(const std::string& text) {
  const std::size_t at = text.find(" (");
  if (at == std::string::npos || text.find('<') != std::string::npos) return text;
  return text.substr(0, at) + "<small>" + text.substr(at + 1) + "</small>";
}

std::string head_of(const std::vector<PageColumn>& columns) {
  std::string groups;
  std::string headings;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string_view group = columns[i].group;
    const bool first = i == 0 || columns[i - 1].group != group;
    const auto wide = std::count_if(columns.begin(), columns.end(), [&](const PageColumn& other) {
      return std::string_view(other.group) == group;
    });
    if (first) groups += format("<th colspan=\"%td\">%s</th>", wide, columns[i].group);
    headings += (first ? "<th class=\"edge\">" : "<th>") + columns[i].heading + "</th>";
  }
  return "<thead><tr><th></th>" + groups + "</tr>\n<tr><th></th>" + headings + "</tr></thead>";
}

}  // namespace

std::string page_table(const std::vector<const CaseSummary*>& cases) {
  const std::vector<PageColumn> columns = page_columns_of(cases);
  std::string html = scroll_box() + "<table class=\"results\">" + head_of(columns) + "<tbody>\n";
  for (const CaseSummary* one : cases) {
    html += std::string(one->is_baseline ? "<tr class=\"base\">" : "<tr>") + "<th title=\"" +
            escaped(one->compressor) + "\">" + breakable(one->name) + "</th>";
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const bool first = i == 0 || std::string_view(columns[i - 1].group) != columns[i].group;
      html += (first ? "<td class=\"edge\">" : "<td>") +
              (one->runs == 0 ? "–" : with_range_below(columns[i].cell(*one))) + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace gradwire
