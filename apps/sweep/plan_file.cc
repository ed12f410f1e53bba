#include "apps/sweep/plan_file.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/whole_file.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

std::string path_in(const std::string& directory) { return directory + "/study.json"; }

Json bound(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_json(const StudyCase& one) {
  return {{"setting", one.setting},
          {"row", one.row},
          {"compressor", one.compressor},
          {"ranks", one.ranks},
          {"transport", one.transport},
          {"lab", one.lab},
          {"flags", one.flags}};
}

Json to_json(const AcceptRule& rule) {
  return {{"text", rule.text},
          {"row", rule.row},
          {"minus", rule.minus},
          {"setting", rule.setting},
          {"metric", rule.metric},
          {"at_least", bound(rule.at_least)},
          {"at_most", bound(rule.at_most)}};
}

// Json's own conversions throw on a wrong type; read_plan_file() catches.
StudyCase case_of(const Json& json) {
  return {.setting = json.at("setting"),
          .row = json.at("row"),
          .compressor = json.at("compressor"),
          .flags = json.at("flags").get<TrainFlags>(),
          .ranks = json.at("ranks"),
          .transport = json.at("transport"),
          .lab = json.at("lab")};
}

AcceptRule rule_of(const Json& json) {
  AcceptRule rule{.text = json.at("text"),
                  .row = json.at("row"),
                  .minus = json.at("minus"),
                  .setting = json.at("setting"),
                  .metric = json.at("metric")};
  if (json.at("at_least").is_number()) rule.at_least = json.at("at_least");
  if (json.at("at_most").is_number()) rule.at_most = json.at("at_most");
  return rule;
}

PlanFile file_of(const Json& json) {
  PlanFile file{.plan = {.title = json.at("title"),
                         .expected = json.at("expected"),
                         .baseline = json.at("baseline"),
                         .target = {},
                         .seeds = json.at("seeds").get<std::vector<std::uint64_t>>(),
                         .cases = {},
                         .accept = {}},
                .runs = json.at("runs").get<std::vector<std::vector<std::string>>>(),
                .command = json.at("command"),
                .environment = json.at("environment"),
                .started = json.at("started")};
  if (json.at("target").is_number()) file.plan.target = json.at("target").get<double>();
  for (const Json& one : json.at("cases")) file.plan.cases.push_back(case_of(one));
  for (const Json& rule : json.at("accept")) file.plan.accept.push_back(rule_of(rule));
  return file;
}

}  // namespace

Status write_plan_file(const std::string& directory, const PlanFile& file) {
  const StudyPlan& plan = file.plan;
  Json json{{"title", plan.title},
            {"expected", plan.expected},
            {"baseline", plan.baseline},
            {"target", plan.target ? Json(*plan.target) : Json(nullptr)},
            {"seeds", plan.seeds},
            {"command", file.command},
            {"environment", file.environment},
            {"started", file.started},
            {"runs", file.runs},
            {"cases", Json::array()},
            {"accept", Json::array()}};
  for (const StudyCase& one : plan.cases) json["cases"].push_back(to_json(one));
  for (const AcceptRule& rule : plan.accept) json["accept"].push_back(to_json(rule));
  return replace_whole_file(path_in(directory),
                            json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<PlanFile> read_plan_file(const std::string& directory) {
  const auto text = read_whole_file(path_in(directory));
  if (!text.has_value())
    return text.error().with_context("'" + directory + "' holds no sweep or comparison");
  try {
    PlanFile file = file_of(Json::parse(text.value()));
    const StudyPlan& plan = file.plan;
    bool whole = !plan.cases.empty() && file.runs.size() == plan.cases.size();
    for (const auto& names : file.runs) whole = whole && names.size() == plan.seeds.size();
    if (!whole)
      return Status(Code::kInvalidArgument,
                    path_in(directory) + ": expected one run per case and seed");
    return file;
  } catch (const Json::exception& error) {
    return Status(Code::kInvalidArgument, path_in(directory) + " is not a plan of a sweep (" +
                                              error.what() +
                                              "); gradwire sweep --resume writes a new one");
  }
}

}  // namespace gradwire
