#include "apps/report/json_report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/report/curves.h"
#include "apps/report/headline.h"
#include "apps/report/scaling.h"
#include "apps/report/table.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return to_double(format("%.9g", value)).value_or(0);
}

Json number(const std::optional<double>& value) { return value ? number(*value) : Json(nullptr); }

Json spread_json(const Spread& spread) {
  if (spread.count == 0) return nullptr;
  return {{"mean", number(spread.mean)},
          {"least", number(spread.least)},
          {"most", number(spread.most)},
          {"sd", number(spread.sd)},
          {"seeds", spread.count}};
}

Json difference_json(const CaseSummary& one) {
  if (one.verdict == Verdict::kNone) return nullptr;
  return {{"mean", number(one.difference.mean)},
          {"half_of_95_percent_interval", number(one.noise)},
          {"seeds", one.difference.count},
          {"verdict", verdict_name(one.verdict)}};
}

Json curve_json(const Curve& curve) {
  Json points = Json::array();
  for (const CurvePoint& p : curve) {
    points.push_back({{"step", number(p.step)},
                      {"bytes", number(p.bytes)},
                      {"seconds", number(p.seconds)},
                      {"mean", number(p.mean)},
                      {"least", number(p.least)},
                      {"most", number(p.most)}});
  }
  return points;
}

Json by_seed(const std::map<std::uint64_t, double>& values) {
  Json json = Json::object();
  for (const auto& [seed, value] : values) json[std::to_string(seed)] = number(value);
  return json;
}

Json traffic_json(const CaseSummary& one) {
  Json json = Json::object();
  for (const auto& [name, bytes] : one.traffic_per_step) json[name] = number(bytes);
  return json;
}

Json step_json(const CaseSummary& one) {
  return {{"step", spread_json(one.step)},
          {"compute", spread_json(one.compute)},
          {"exposed", spread_json(one.exposed)},
          {"hidden", spread_json(one.hidden)},
          {"other", number(one.other_ms)},
          {"encode", number(one.encode_ms)},
          {"wire", number(one.wire_ms)},
          {"decode", number(one.decode_ms)},
          {"stage_wait", number(one.stage_wait_ms)}};
}

Json row_json(const ReportInput& input, const CaseSummary& one) {
  const auto index = static_cast<std::size_t>(&one - input.cases.data());
  const auto runs = runs_of(input.results, index);
  return {{"row", one.name},
          {"compressor", one.compressor},
          {"parallel", one.parallel.empty() ? Json(nullptr) : Json(one.parallel)},
          {"simulated_bubble", number(one.bubble)},
          {"baseline", one.is_baseline},
          {"runs", one.runs},
          {"diverged", one.diverged},
          {"test_samples", one.test_samples ? Json(*one.test_samples) : Json(nullptr)},
          {"accuracy_percent", spread_json(one.accuracy)},
          {"accuracy_percent_by_seed", by_seed(one.accuracies)},
          {"difference_points", difference_json(one)},
          {"training_loss", spread_json(one.final_loss)},
          {"test_loss", spread_json(one.final_test_loss)},
          {"perplexity", spread_json(one.perplexity)},
          {"test_loss_difference", spread_json(one.loss_difference)},
          {"sent_bytes_per_step", spread_json(one.sent)},
          {"traffic_bytes_per_step", traffic_json(one)},
          {"payload_bytes_per_step", number(one.payload_per_step)},
          {"sent_bytes_in_all", number(one.total_bytes)},
          {"ratio_to_fp32", one.ratio > 0 ? number(one.ratio) : Json(nullptr)},
          {"ratio_to_bf16", number(one.ratio_to_bf16)},
          {"milliseconds_per_step", step_json(one)},
          {"target_percent", number(one.target)},
          {"seconds_to_target", spread_json(one.seconds_to_target)},
          {"evaluated_at_the_end_only", one.evaluated_once},
          {"nmse", number(one.nmse)},
          {"residual_to_gradient", number(one.residual)},
          {"on_front", one.on_front},
          {"training_loss_course", curve_json(loss_curve(runs))},
          {"accuracy_percent_course", curve_json(accuracy_curve(runs))},
          {"test_loss_course", curve_json(test_loss_curve(runs))}};
}

Json settings_json(const ReportInput& input) {
  Json settings = Json::array();
  for (const std::string& name : settings_of(input.results.plan())) {
    Json rows = Json::array();
    for (const CaseSummary& one : input.cases) {
      if (one.setting == name) rows.push_back(row_json(input, one));
    }
    settings.push_back({{"setting", name}, {"rows", std::move(rows)}});
  }
  return settings;
}

Json expectations_json(const std::vector<RuleOutcome>& rules) {
  Json list = Json::array();
  for (const RuleOutcome& one : rules) {
    list.push_back({{"text", rule_text(one)},
                    {"metric", one.rule.metric},
                    {"at_least", number(one.rule.at_least)},
                    {"at_most", number(one.rule.at_most)},
                    {"measured", number(one.value)},
                    {"accepted", one.accepted}});
  }
  return list;
}

Json ranks_json(const ReportInput& input) {
  Json list = Json::array();
  for (const ScalingRow& row : scaling_of(input.results.plan(), input.cases)) {
    Json points = Json::array();
    for (std::size_t i = 0; i < row.ranks.size(); ++i) {
      points.push_back({{"ranks", row.ranks[i]},
                        {"milliseconds_per_step", number(row.cases[i]->step_ms)},
                        {"exposed_milliseconds", number(row.cases[i]->exposed_ms)},
                        {"speed_up", number(row.speed_up(i))},
                        {"left_of_the_ranks", number(row.left_by_communication(i))}});
    }
    list.push_back({{"row", row.name}, {"setting", row.setting}, {"points", std::move(points)}});
  }
  return list;
}

}  // namespace

std::string json_report(const ReportInput& input) {
  const Results& results = input.results;
  const Json json{{"report", 1},
                  {"title", results.plan().title},
                  {"headline", headline_of(results)},
                  {"expected", results.plan().expected},
                  {"command", results.file.command},
                  {"environment", results.file.environment},
                  {"started", results.file.started},
                  {"seconds_of_runs", number(seconds_of_runs(results))},
                  {"seeds", results.plan().seeds},
                  {"baseline", results.plan().baseline},
                  {"missing", results.missing},
                  {"settings", settings_json(input)},
                  {"expectations", expectations_json(input.rules)},
                  {"more_ranks", ranks_json(input)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gradwire
