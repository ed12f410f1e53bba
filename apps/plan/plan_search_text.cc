#include "apps/plan/plan_search_text.h"

#include <nlohmann/json.hpp>

#include "apps/sim/sim_text.h"
#include "base/text.h"
#include "timeline/timeline.h"

namespace gradwire {
namespace {

constexpr double kNanosecond = 1e-9;

std::string ticks_text(std::int64_t ticks) {
  return time_text(static_cast<double>(ticks) * kNanosecond);
}

std::string devices_text(const std::vector<int>& devices) {
  std::string text;
  for (const int device : devices) text += (text.empty() ? "" : ",") + std::to_string(device);
  return text;
}

std::string split_text(const OperatorSplit& split) {
  if (split.parts() == 1) return "whole";
  std::string text;
  const auto add = [&text](const char* what, int parts) {
    if (parts > 1) text += format("%s%s/%d", text.empty() ? "" : " ", what, parts);
  };
  add("samples", split.samples);
  add("positions", split.positions);
  add("channels", split.channels);
  return text;
}

// The timeline of a strategy.
struct Lowered {
  LoweredStrategy tasks;
  Timeline timeline;
};
Result<Lowered> lowered(SimulatedCost& cost, const OperatorStrategy& strategy) {
  Lowered all;
  GW_ASSIGN(all.tasks, cost.lower(strategy));
  GW_ASSIGN(all.timeline, run_timeline(all.tasks.tasks, cost.cluster().resources()));
  return all;
}

double busy_share(const Lowered& all, int device) {
  const std::int64_t makespan = std::max<std::int64_t>(all.timeline.makespan, 1);
  return static_cast<double>(all.timeline.busy[static_cast<std::size_t>(device)]) /
         static_cast<double>(makespan);
}

}  // namespace

Result<std::string> placement_text(SimulatedCost& cost, const SearchResult& result) {
  GW_ASSIGN(const Lowered all, lowered(cost, result.strategy));
  std::string text =
      format("best: %s after %lld evaluations%s\n", ticks_text(result.time.ticks).c_str(),
             static_cast<long long>(result.evaluations),
             result.time.over > 0 ? ", which does not fit" : "");
  text += format("\n%12s %12s\n", "evaluation", "step");
  for (const SearchPoint& point : result.best) {
    text +=
        format("%12lld %12s%s\n", static_cast<long long>(point.evaluation),
               ticks_text(point.time.ticks).c_str(), point.time.over > 0 ? "  does not fit" : "");
  }
  text += format("\n%-8s %7s %12s\n", "device", "busy", "memory");
  for (int device = 0; device < cost.cluster().devices(); ++device) {
    text += format("%-8d %6.1f%% %12s\n", device, 100 * busy_share(all, device),
                   size_text(result.time.memory[static_cast<std::size_t>(device)]).c_str());
  }
  text += format("\n%-24s %-24s %s\n", "operator", "divided by", "devices");
  for (int number = 0; number < cost.graph().size(); ++number) {
    const OperatorSplit& split = result.strategy[static_cast<std::size_t>(number)];
    text += format("%-24s %-24s %s\n", cost.graph().at(number).name.c_str(),
                   split_text(split).c_str(), devices_text(split.devices).c_str());
  }
  return text;
}

Result<std::string> placement_lines(SimulatedCost& cost, const SearchResult& result) {
  GW_ASSIGN(const Lowered all, lowered(cost, result.strategy));
  std::string text;
  for (const SearchPoint& point : result.best) {
    nlohmann::ordered_json json;
    json["kind"] = "point";
    json["evaluation"] = point.evaluation;
    json["seconds"] = static_cast<double>(point.time.ticks) * kNanosecond;
    json["over_bytes"] = point.time.over;
    text += json.dump() + "\n";
  }
  for (int number = 0; number < cost.graph().size(); ++number) {
    const OperatorSplit& split = result.strategy[static_cast<std::size_t>(number)];
    nlohmann::ordered_json json;
    json["kind"] = "operator";
    json["name"] = cost.graph().at(number).name;
    json["samples"] = split.samples;
    json["positions"] = split.positions;
    json["channels"] = split.channels;
    json["devices"] = split.devices;
    text += json.dump() + "\n";
  }
  for (int device = 0; device < cost.cluster().devices(); ++device) {
    nlohmann::ordered_json json;
    json["kind"] = "device";
    json["device"] = device;
    json["busy"] = busy_share(all, device);
    json["memory_bytes"] = result.time.memory[static_cast<std::size_t>(device)];
    text += json.dump() + "\n";
  }
  return text;
}

std::string stages_text(const StageCost& cost, const StagePartition& found,
                        std::int64_t simulated) {
  std::string text = format("%-6s %-9s %-9s %12s %12s %12s\n", "stage", "layers", "devices",
                            "forward", "backward", "all-reduce");
  int number = 0;
  for (const PlacedStage& stage : found.stages) {
    text +=
        format("%-6d %-9s %-9s %12s %12s %12s\n", number++,
               format("%d-%d", stage.first_layer, stage.end_layer - 1).c_str(),
               format("%d-%d", stage.first_device, stage.end_device - 1).c_str(),
               ticks_text(cost.forward(stage)).c_str(), ticks_text(cost.backward(stage)).c_str(),
               ticks_text(cost.reduce(stage)).c_str());
  }
  text +=
      "forward and backward of a micro-batch, that each device has a part of; all-reduce of a "
      "step\n";
  text +=
      format("minimised: %s; a step of %d micro-batches under 1F1B, simulated: %s\n",
             ticks_text(found.ticks).c_str(), cost.micro_batches(), ticks_text(simulated).c_str());
  return text;
}

std::string stages_lines(const StageCost& cost, const StagePartition& found,
                         std::int64_t simulated) {
  std::string text;
  for (const PlacedStage& stage : found.stages) {
    nlohmann::ordered_json json;
    json["kind"] = "stage";
    json["first_layer"] = stage.first_layer;
    json["layers"] = stage.end_layer - stage.first_layer;
    json["first_device"] = stage.first_device;
    json["devices"] = stage.replicas();
    json["forward_seconds"] = static_cast<double>(cost.forward(stage)) * kNanosecond;
    json["backward_seconds"] = static_cast<double>(cost.backward(stage)) * kNanosecond;
    json["reduce_seconds"] = static_cast<double>(cost.reduce(stage)) * kNanosecond;
    text += json.dump() + "\n";
  }
  nlohmann::ordered_json json;
  json["kind"] = "partition";
  json["minimised_seconds"] = static_cast<double>(found.ticks) * kNanosecond;
  json["simulated_seconds"] = static_cast<double>(simulated) * kNanosecond;
  return text + json.dump() + "\n";
}

}  // namespace gradwire
