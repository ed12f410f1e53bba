#include "apps/report/page.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/report/curves.h"
#include "apps/report/headline.h"
#include "apps/report/html_page.h"
#include "apps/report/page_files.h"
#include "apps/report/page_table.h"
#include "apps/report/scaling.h"
#include "apps/report/table.h"
#include "apps/sweep/run_spec.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

// What is plotted of a setting, so that no empty chart is drawn.
struct Plots {
  bool time = false;  // steps' times were measured
  bool pareto = false;
  bool bytes = false;  // something was sent
  bool loss = false;
  bool accuracy = false;
  bool test_loss = false;  // of texts, evaluated more than once
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
    plots.time = plots.time || one->step_ms > 0;
    plots.bytes = plots.bytes || one->bytes_per_step > 0;
    plots.pareto = plots.pareto || (one->bytes_per_step > 0 && one->diverged == 0);
    plots.accuracy = plots.accuracy || !one->evaluated_once;
    plots.test_loss = plots.test_loss || (one->is_text && !one->evaluated_once);
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

// Milliseconds of a step: computing while nothing is sent, computing while communication goes on,
// waiting for communication, and the rest; least and most of the whole over the seeds.
Json time_of(const CaseSummary& one) {
  Json times = Json::array();
  for (const double value : {one.compute_ms - one.hidden_ms, one.hidden_ms, one.exposed_ms,
                             one.other_ms, one.step.least, one.step.most})
    times.push_back(short_number(value));
  return times;
}

// The noise of a difference to the baseline, in percent points: of a row that is as accurate as it
// is.
Json noise_of_baseline(const std::vector<const CaseSummary*>& cases) {
  for (const CaseSummary* one : cases) {
    if (one->is_baseline && one->runs > 0 && one->test_samples)
      return {
          short_number(one->accuracy.mean),
          short_number(test_set_noise(one->accuracy.mean, one->accuracy.mean, *one->test_samples)),
          *one->test_samples};
  }
  return nullptr;
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
           {"time", time_of(one)},
           {"verdict", verdict_name(one.verdict)},
           {"loss", points_of(loss_curve(runs))},
           {"accuracy", points_of(accuracy_curve(runs))}};
  if (one.is_text) row["test_loss"] = points_of(test_loss_curve(runs));
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

std::string figure(const std::string& id, std::size_t setting, const std::string& caption,
                   bool wide) {
  const std::string number = std::to_string(setting);
  return std::string(wide ? "<figure class=\"wide\" id=\"" : "<figure id=\"") + id + "-" + number +
         "\" data-setting=\"" + number + "\"><figcaption>" + caption +
         "</figcaption><div class=\"chart\"><canvas role=\"img\" aria-label=\"" + caption +
         "\"></canvas></div></figure>\n";
}

// A figure that is a part of its own, with a heading.
std::string single_figure(const std::string& id, const std::string& number,
                          const std::string& heading, const std::string& caption,
                          const std::string& label) {
  const std::string name = id + "-" + number;
  return "<div data-part=\"" + name + "\"><figure id=\"" + name + "\" data-setting=\"" + number +
         "\"><h3>" + heading + "</h3><figcaption>" + caption +
         "</figcaption><div class=\"chart tall\"><canvas role=\"img\" aria-label=\"" + label +
         "\"></canvas></div></figure></div>\n";
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
  html += page_table(cases);
  html += "<div class=\"pair\">\n";
  if (plots.pareto) {
    html += single_figure(
        "pareto", number, "Accuracy against bytes",
        "<span class=\"below\"></span>Filled, and joined: no other row sends fewer bytes at an "
        "accuracy that is as high or within noise of it. Bars: minimum to maximum over the seeds."
        "<span class=\"noise\"></span>",
        "test accuracy against bytes sent per step");
  }
  if (plots.time) {
    html += single_figure(
        "time", number, "Where the time of a step goes",
        std::string("Exposed communication is what a compressor can save: the step waits for it") +
            (has_stages(cases) ? ", or, of a model in stages, for other stages" : "") +
            ". Hidden "
            "communication continues while the backward pass computes. Bars at the end: minimum to "
            "maximum over the seeds.",
        "milliseconds of a step by compressor: computing, hidden and exposed communication");
  }
  html += "</div>\n";
  if (plots.test_loss) html += courses("testloss", "Test loss", index, plots.bytes);
  if (plots.loss) html += courses("loss", "Training loss", index, plots.bytes);
  if (plots.accuracy) {
    html += courses("accuracy", "Test accuracy", index, plots.bytes);
  } else if (plots.loss) {
    html +=
        "<p class=\"dim\">Test accuracy was evaluated at the end only (--eval-every N draws "
        "its curve).</p>\n";
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

// Different values of one total over all runs, in the order of the runs; with a unit or a name.
std::string totals_text(const Results& results, const char* key, const std::string& before,
                        const std::string& after = "") {
  std::vector<std::string> values;
  for (const RunResult& run : results.runs) {
    const auto found = run.metrics.totals.find(key);
    if (found == run.metrics.totals.end()) continue;
    std::string value = found->is_string() ? found->get<std::string>() : found->dump();
    if (std::find(values.begin(), values.end(), value) == values.end())
      values.push_back(std::move(value));
  }
  return values.empty() ? "" : "; " + before + joined(values) + after;
}

// What the headline leaves out: size of the model, optimizer, and other flags that all cases share.
std::string setup_text(const Results& results) {
  static const std::set<std::string> said{"model",         "data",    "batch",    "steps",
                                          "optimizer",     "lr",      "momentum", "ranks",
                                          "measure-every", "data-dir"};
  const StudyPlan& plan = results.plan();
  TrainFlags shared = plan.cases.front().flags;
  for (const StudyCase& one : plan.cases) {
    for (auto at = shared.begin(); at != shared.end();) {
      const auto found = one.flags.find(at->first);
      at = found == one.flags.end() || found->second != at->second ? shared.erase(at) : ++at;
    }
  }
  std::string text = totals_text(results, "parameters", "", " parameters") +
                     totals_text(results, "optimizer", "optimizer ") +
                     totals_text(results, "lr", "learning rate ") +
                     totals_text(results, "momentum", "momentum ");
  for (const auto& [name, value] : shared) {
    if (said.count(name) == 0) text += "; " + name + " " + value;
  }
  return text.empty() ? text : text.substr(2);
}

std::string seeds_text(const StudyPlan& plan) {
  std::string seeds;
  for (const std::uint64_t seed : plan.seeds)
    seeds += (seeds.empty() ? "" : ", ") + std::to_string(seed);
  if (plan.seeds.size() == 1)
    return "One seed (" + seeds + "): the spread over seeds is not known.";
  return format("%zu seeds (", plan.seeds.size()) + seeds +
         "): figures and lines are means; brackets, bands and bars reach from the minimum to the "
         "maximum over the seeds.";
}

}  // namespace

std::vector<std::string> report_parts(const ReportInput& input) {
  std::vector<std::string> parts;
  const auto settings = settings_of(input.results.plan());
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const Plots plots = plots_of(input, settings[i]);
    const std::string number = "-" + std::to_string(i);
    if (plots.pareto) parts.push_back("pareto" + number);
    if (plots.time) parts.push_back("time" + number);
    if (plots.test_loss) parts.push_back("testloss" + number);
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
    data["settings"].push_back({{"name", settings[i]},
                                {"noise", noise_of_baseline(cases_of(input, settings[i]))},
                                {"rows", rows}});
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
       {"headline", escaped(headline_of(input.results))},
       {"setup", escaped(setup_text(input.results))},
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
