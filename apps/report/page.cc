#include "apps/report/page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/report/curves.h"
#include "apps/report/html_page.h"
#include "apps/report/page_files.h"
#include "apps/report/scaling.h"
#include "apps/report/table.h"
#include "apps/sweep/run_spec.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

// What is plotted of a setting, so that no empty chart is drawn.
struct Plots {
  bool pareto = false;
  bool bytes = false;  // something was sent
  bool loss = false;
  bool accuracy = false;
};

std::vector<const CaseSummary*> cases_of(const ReportInput& input, const std::string& setting) {
  std::vector<const CaseSummary*> own;
  for (const CaseSummary& one : input.cases) {
    if (one.setting == setting) own.push_back(&one);
  }
  return own;
}

std::size_t index_of(const ReportInput& input, const CaseSummary& one) {
  return static_cast<std::size_t>(&one - input.cases.data());
}

Plots plots_of(const ReportInput& input, const std::string& setting) {
  Plots plots;
  for (const CaseSummary* one : cases_of(input, setting)) {
    if (one->runs == 0) continue;
    plots.loss = true;
    plots.bytes = plots.bytes || one->bytes_per_step > 0;
    plots.pareto = plots.pareto || (one->bytes_per_step > 0 && one->diverged == 0);
    plots.accuracy = plots.accuracy || !one->evaluated_once;
  }
  return plots;
}

// Six significant digits: a picture has no more.
Json short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return to_double(format("%.6g", value)).value_or(0);
}

Json points_of(const Curve& curve) {
  Json points = Json::array();
  for (const CurvePoint& p : curve) {
    Json point = Json::array();
    for (const double value : {p.step, p.bytes / 1e6, p.seconds, p.mean, p.least, p.most})
      point.push_back(short_number(value));
    points.push_back(std::move(point));
  }
  return points;
}

Json row_of(const ReportInput& input, const CaseSummary& one) {
  const auto runs = runs_of(input.results, index_of(input, one));
  Json row{{"name", one.name},
           {"spec", one.compressor},
           {"base", one.is_baseline},
           {"bf16", one.compressor == "cast:bf16"},
           {"runs", one.runs},
           {"diverged", one.diverged},
           {"front", one.on_front},
           {"mb_step", short_number(one.bytes_per_step / 1e6)},
           {"loss", points_of(loss_curve(runs))},
           {"accuracy", points_of(accuracy_curve(runs))}};
  if (one.runs > 0)
    row["acc"] = {short_number(one.accuracy.mean), short_number(one.accuracy.least),
                  short_number(one.accuracy.most)};
  return row;
}

// Time to the target over the links' rates, for rows that reached it at two rates at least.
Json bandwidth_of(const ReportInput& input) {
  std::map<std::string, Json> rows;
  std::vector<std::string> order;
  std::set<std::pair<std::string, double>> seen;
  for (const CaseSummary& one : input.cases) {
    const double bits = one.lab.empty() ? 0 : lab_bits(one.lab);
    if (bits <= 0 || one.seconds_to_target.count == 0) continue;
    // Settings that differ in more than their links cannot share a picture.
    if (!seen.insert({one.name, bits}).second) return Json::array();
    if (rows.count(one.name) == 0) {
      order.push_back(one.name);
      rows[one.name] = {{"name", one.name},
                        {"base", one.is_baseline},
                        {"bf16", one.compressor == "cast:bf16"},
                        {"points", Json::array()}};
    }
    rows[one.name]["points"].push_back({bits / 1e6, short_number(one.seconds_to_target.mean)});
  }
  Json list = Json::array();
  for (const std::string& name : order) {
    Json& row = rows[name];
    std::sort(row["points"].begin(), row["points"].end());
    if (row["points"].size() > 1) list.push_back(row);
  }
  return list;
}

// A column of the table; groups have a heading of their own.
struct Column {
  const char* group;
  std::string heading;
  std::function<std::string(const CaseSummary&)> cell;
};

std::string four_digits(const std::optional<double>& value) {
  return value ? format("%.4f", *value) : "–";
}

std::string exposed_text(const CaseSummary& one) {
  std::string text = format("%.2f", one.exposed_ms);
  if (one.step_ms > 0) text += format(" (%.0f %%)", 100 * one.exposed_ms / one.step_ms);
  return text;
}

// Columns that would be empty are left out.
std::vector<Column> columns_of(const std::vector<const CaseSummary*>& cases) {
  const auto any = [&](auto has) {
    return std::any_of(cases.begin(), cases.end(),
                       [&](const CaseSummary* one) { return has(*one); });
  };
  std::string target;
  for (const CaseSummary* one : cases) {
    if (one->target && target.empty()) target = format("<br>%.2f %%", *one->target);
  }
  const auto bytes = [](double CaseSummary::*field) {
    return [field](const CaseSummary& one) { return bytes_text(one.*field); };
  };
  const auto ms = [](double CaseSummary::*field) {
    return [field](const CaseSummary& one) { return format("%.2f", one.*field); };
  };
  std::vector<Column> columns{
      {"model", "test<br>accuracy, %", accuracy_text},
      {"model", "difference", difference_text},
      {"model", "training<br>loss", [](const CaseSummary& one) { return four_digits(one.loss); }}};
  if (any([](const CaseSummary& one) { return one.test_loss.has_value(); }))
    columns.push_back({"model", "test<br>loss",
                       [](const CaseSummary& one) { return four_digits(one.test_loss); }});
  columns.push_back({"bytes", "sent<br>per step", bytes(&CaseSummary::bytes_per_step)});
  columns.push_back({"bytes", "payload<br>per step", bytes(&CaseSummary::payload_per_step)});
  columns.push_back({"bytes", "sent<br>in all", bytes(&CaseSummary::total_bytes)});
  columns.push_back({"bytes", "ratio<br>to fp32", ratio_text});
  if (any([](const CaseSummary& one) { return one.ratio_to_bf16.has_value(); }))
    columns.push_back({"bytes", "ratio<br>to bf16", [](const CaseSummary& one) {
                         return one.ratio_to_bf16 ? format("%.1f", *one.ratio_to_bf16) : "–";
                       }});
  columns.push_back({"time", "to target" + target, time_to_target_text});
  columns.push_back({"time", "ms per<br>step", ms(&CaseSummary::step_ms)});
  columns.push_back({"time", "compute", ms(&CaseSummary::compute_ms)});
  columns.push_back({"time", "encode", ms(&CaseSummary::encode_ms)});
  columns.push_back({"time", "wire", ms(&CaseSummary::wire_ms)});
  columns.push_back({"time", "decode", ms(&CaseSummary::decode_ms)});
  columns.push_back({"time", "exposed", exposed_text});
  if (any([](const CaseSummary& one) { return one.nmse.has_value(); }))
    columns.push_back(
        {"error", "NMSE", [](const CaseSummary& one) { return measured_text(one.nmse); }});
  if (any([](const CaseSummary& one) { return one.residual.has_value(); }))
    columns.push_back({"error", "residual /<br>gradient",
                       [](const CaseSummary& one) { return measured_text(one.residual); }});
  return columns;
}

std::string head_of(const std::vector<Column>& columns) {
  std::string groups;
  std::string headings;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string_view group = columns[i].group;
    const bool first = i == 0 || columns[i - 1].group != group;
    const auto wide = std::count_if(columns.begin(), columns.end(), [&](const Column& other) {
      return std::string_view(other.group) == group;
    });
    if (first) groups += format("<th colspan=\"%td\">%s</th>", wide, columns[i].group);
    headings += (first ? "<th class=\"edge\">" : "<th>") + columns[i].heading + "</th>";
  }
  return "<thead><tr><th></th>" + groups + "</tr>\n<tr><th></th>" + headings + "</tr></thead>";
}

std::string table_of(const std::vector<const CaseSummary*>& cases) {
  const std::vector<Column> columns = columns_of(cases);
  std::string html = scroll_box() + "<table class=\"results\">" + head_of(columns) + "<tbody>\n";
  for (const CaseSummary* one : cases) {
    html += std::string(one->is_baseline ? "<tr class=\"base\">" : "<tr>") + "<th title=\"" +
            escaped(one->compressor) + "\">" + breakable(one->name) + "</th>";
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const bool first = i == 0 || std::string_view(columns[i - 1].group) != columns[i].group;
      html += (first ? "<td class=\"edge\">" : "<td>") +
              (one->runs == 0 ? "–" : columns[i].cell(*one)) + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string figure(const std::string& id, std::size_t setting, const std::string& caption,
                   bool wide) {
  const std::string number = std::to_string(setting);
  return std::string(wide ? "<figure class=\"wide\" id=\"" : "<figure id=\"") + id + "-" + number +
         "\" data-setting=\"" + number + "\"><figcaption>" + caption +
         "</figcaption><div class=\"chart\"><canvas role=\"img\" aria-label=\"" + caption +
         "\"></canvas></div></figure>\n";
}

std::string courses(const std::string& key, const std::string& heading, std::size_t setting,
                    bool bytes) {
  const std::string number = std::to_string(setting);
  return "<div data-part=\"" + key + "-" + number + "\"><h3>" + heading +
         "</h3>\n<div class=\"legend\" data-setting=\"" + number +
         "\"></div>\n<div class=\"charts\">\n" +
         figure(key + "-steps", setting, "against steps", false) +
         (bytes ? figure(key + "-bytes", setting, "against megabytes sent per rank", false) : "") +
         figure(key + "-time", setting, "against seconds of training", false) + "</div></div>\n";
}

std::string setting_section(const ReportInput& input, const std::string& name, std::size_t index) {
  const auto cases = cases_of(input, name);
  const Plots plots = plots_of(input, name);
  const std::string number = std::to_string(index);
  std::string html = "<section>\n<h2>" + escaped(name.empty() ? "Results" : name) + "</h2>\n";
  html += table_of(cases);
  if (plots.pareto) {
    html +=
        "<div data-part=\"pareto-" + number +
        "\"><div class=\"charts\"><figure class=\"wide\" id=\"pareto-" + number +
        "\" data-setting=\"" + number +
        "\"><h3>Accuracy against bytes</h3><figcaption><span class=\"below\"></span>Filled, and "
        "joined: no other row is as accurate with fewer bytes. Bars: least to most of the "
        "seeds.</figcaption><div class=\"chart\"><canvas role=\"img\" aria-label=\"test accuracy "
        "against bytes sent per step\"></canvas></div></figure></div></div>\n";
  }
  if (plots.loss) html += courses("loss", "Training loss", index, plots.bytes);
  if (plots.accuracy) {
    html += courses("accuracy", "Test accuracy", index, plots.bytes);
  } else if (plots.loss) {
    html +=
        "<p class=\"dim\">Test accuracy was evaluated at the end only (eval-every = N in [train] "
        "draws its course).</p>\n";
  }
  return html + "</section>\n";
}

std::string rules_section(const std::vector<RuleOutcome>& rules) {
  if (rules.empty()) return {};
  const auto refused = std::count_if(rules.begin(), rules.end(),
                                     [](const RuleOutcome& rule) { return !rule.accepted; });
  std::string html = format("<h2>What was expected</h2><p>%zu of %zu expectations were met.</p>\n",
                            rules.size() - static_cast<std::size_t>(refused), rules.size()) +
                     scroll_box() +
                     "<table class=\"rules\"><tr><th>expectation</th>"
                     "<th>measured</th><th></th></tr>\n";
  for (const RuleOutcome& outcome : rules) {
    std::string text = escaped(rule_text(outcome));
    if (std::isfinite(outcome.rule.at_least)) text += format(" ≥\u00a0%g", outcome.rule.at_least);
    if (std::isfinite(outcome.rule.at_most)) text += format(" ≤\u00a0%g", outcome.rule.at_most);
    html += "<tr><th>" + text + format("</th><td>%.2f</td>", outcome.value) +
            (outcome.accepted ? "<td class=\"yes\">accepted</td></tr>\n"
                              : "<td class=\"no\">refused</td></tr>\n");
  }
  return html + "</table></div>\n";
}

std::string missing_section(const Results& results) {
  if (results.missing.empty()) return {};
  std::string html = format("<div class=\"notice\"><b>%zu of %zu runs have no result.</b><ul>",
                            results.missing.size(), results.missing.size() + results.runs.size());
  for (std::size_t i = 0; i < std::min<std::size_t>(results.missing.size(), 20); ++i)
    html += "<li>" + escaped(results.missing[i]) + "</li>";
  if (results.missing.size() > 20) html += "<li>…</li>";
  return html + "</ul></div>\n";
}

// Flags that all cases share, and what carries their ranks.
std::string setup_text(const StudyPlan& plan) {
  TrainFlags shared = plan.cases.front().flags;
  std::set<std::string> places;
  for (const StudyCase& one : plan.cases) {
    for (auto at = shared.begin(); at != shared.end();) {
      const auto found = one.flags.find(at->first);
      at = found == one.flags.end() || found->second != at->second ? shared.erase(at) : ++at;
    }
    places.insert(format("%d rank%s", one.ranks, one.ranks == 1 ? "" : "s") +
                  (one.transport == "inproc" ? " as threads" : " over " + one.transport) +
                  (one.lab.empty() ? "" : " in a laboratory of " + one.lab));
  }
  std::string text;
  for (const std::string& place : places) text += (text.empty() ? "" : "; ") + place;
  for (const auto& [name, value] : shared) {
    if (name != "data-dir" && name != "measure-every") text += "; " + name + " " + value;
  }
  return text;
}

std::string seeds_text(const StudyPlan& plan) {
  std::string seeds;
  for (const std::uint64_t seed : plan.seeds)
    seeds += (seeds.empty() ? "" : ", ") + std::to_string(seed);
  if (plan.seeds.size() == 1) return "One seed (" + seeds + "): no spread is known.";
  return format("%zu seeds (", plan.seeds.size()) + seeds +
         "): lines are means, bands and bars reach from the least to the most, ± is the sample "
         "standard deviation.";
}

}  // namespace

std::vector<std::string> report_parts(const ReportInput& input) {
  std::vector<std::string> parts;
  const auto settings = settings_of(input.results.plan());
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const Plots plots = plots_of(input, settings[i]);
    const std::string number = "-" + std::to_string(i);
    if (plots.pareto) parts.push_back("pareto" + number);
    if (plots.loss) parts.push_back("loss" + number);
    if (plots.accuracy) parts.push_back("accuracy" + number);
  }
  if (!bandwidth_of(input).empty()) parts.emplace_back("bandwidth");
  return parts;
}

std::string html_report(const ReportInput& input) {
  const StudyPlan& plan = input.results.plan();
  const Json by_bandwidth = bandwidth_of(input);
  Json data{{"settings", Json::array()}, {"bandwidth", by_bandwidth}};
  std::string sections;
  const auto settings = settings_of(plan);
  for (std::size_t i = 0; i < settings.size(); ++i) {
    Json rows = Json::array();
    for (const CaseSummary* one : cases_of(input, settings[i])) rows.push_back(row_of(input, *one));
    data["settings"].push_back({{"name", settings[i]}, {"rows", rows}});
    sections += setting_section(input, settings[i], i);
  }
  const std::string bandwidth =
      by_bandwidth.empty()
          ? ""
          : "<div data-part=\"bandwidth\"><div class=\"charts\"><figure class=\"wide\" "
            "id=\"bandwidth\"><h3>Time to accuracy against bandwidth</h3><figcaption>Means over "
            "the seeds that reached the target.</figcaption><div class=\"chart\"><canvas "
            "role=\"img\" aria-label=\"time to accuracy against bandwidth\"></canvas></div>"
            "</figure></div></div>\n";
  return filled(
      std::string(kReportPage, kReportPageBytes),
      {{"title", escaped(plan.title)},
       {"setup", escaped(setup_text(plan))},
       {"expected", plan.expected.empty() ? "" : "<p>" + escaped(plan.expected) + "</p>"},
       {"missing", missing_section(input.results)},
       {"rules", rules_section(input.rules)},
       {"bandwidth", bandwidth},
       {"settings", sections},
       {"scaling", scaling_section(scaling_of(plan, input.cases))},
       {"seeds", seeds_text(plan)},
       {"command", escaped(input.results.file.command)},
       {"environment", escaped(input.results.file.environment + "; " + input.results.file.started)},
       {"data", script_json(data)},
       {"script", std::string(kReportScript, kReportScriptBytes)},
       {"chartjs", std::string(kChartJs, kChartJsBytes)}});
}

}  // namespace gradwire
