#include "apps/plan/plan_search_mesh.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/plan/plan_file.h"
#include "apps/plan/plan_model.h"
#include "apps/plan/read_cluster.h"
#include "apps/sim/sim_text.h"
#include "base/text.h"
#include "trainer/pipeline/generate.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {
namespace {

double seconds_of(const StrategyTime& time) { return static_cast<double>(time.ticks) * 1e-9; }

std::string compared_text(const char* which, const ComparedMesh& one) {
  return format("%s mesh: %s, %s%s, on the same devices for %.0f %% of the operators\n", which,
                to_string(one.mesh).c_str(), time_text(seconds_of(one.time)).c_str(),
                one.time.over > 0 ? ", does not fit" : "", 100 * one.agreement);
}

nlohmann::ordered_json compared_json(const ComparedMesh& one) {
  return {{"parallel", to_string(one.mesh)},
          {"seconds", seconds_of(one.time)},
          {"fits", one.time.over == 0},
          {"agreement", one.agreement}};
}

// The model's question, for plan_model().
PlanQuestion model_question(const GraphQuestion& q) {
  PlanQuestion asked = q.model;
  asked.model = q.graph;
  return asked;
}

// Why gradwire train would not run a mesh of its models; empty: it does.
Result<std::string> why_not_trained(const GraphQuestion& q, const GraphMesh& mesh,
                                    std::int64_t accumulate) {
  if (q.batch % (mesh.dp * accumulate) != 0) {
    return format("%lld samples do not divide evenly among %d replicas of %lld micro-batches",
                  static_cast<long long>(q.batch), mesh.dp, static_cast<long long>(accumulate));
  }
  if (mesh.pp == 1) return std::string();
  GW_ASSIGN(const Model<float> model, plan_model(model_question(q)));
  const PipelineSpec order{.kind = PipelineKind::kOneFOneB, .layers = mesh.layers};
  GW_ASSIGN(const PipelineSchedule schedule, generate_pipeline(order, mesh.pp, 1));
  const auto stages = plan_stages(model, schedule, 0, {});
  return stages.has_value() ? std::string() : std::string(stages.error().message());
}

Status not_written(const std::string& why) {
  return {Code::kUnsupported, "--write is of a mesh that gradwire train runs: " + why};
}

}  // namespace

Result<MeshVerdict> judge_answer(const GraphQuestion& q, const OperatorGraph& graph,
                                 const Cluster& cluster, const SearchAnswer& answer,
                                 const MeshTime& mesh_time) {
  MeshVerdict verdict{.why = answer.other_layouts};
  if (verdict.why.empty()) {
    auto mesh = mesh_of(graph, cluster, answer.strategy);
    if (mesh.has_value()) {
      verdict.mesh = std::move(mesh).value();
      if (is_train_model(q)) {
        GW_ASSIGN(verdict.why, why_not_trained(q, verdict.mesh, answer.accumulate));
      }
    } else if (mesh.error().code() == Code::kUnsupported) {
      verdict.why = mesh.error().message();
    } else {
      return mesh.error();
    }
  }
  if (verdict.why.empty()) return verdict;
  GW_ASSIGN(verdict.near, near_meshes(graph, cluster, answer.strategy, mesh_time));
  return verdict;
}

std::string verdict_text(const MeshVerdict& verdict) {
  if (verdict.why.empty()) return "a mesh: " + to_string(verdict.mesh) + "\n";
  return "no mesh: " + verdict.why + "\n" + compared_text("nearest", verdict.near.nearest) +
         compared_text("fastest", verdict.near.fastest);
}

std::string verdict_line(const MeshVerdict& verdict) {
  nlohmann::ordered_json json;
  json["kind"] = "answer";
  const bool is_mesh = verdict.why.empty();
  json["parallel"] = is_mesh ? to_string(verdict.mesh) : "";
  json["why"] = verdict.why;
  json["nearest"] = is_mesh ? nlohmann::ordered_json() : compared_json(verdict.near.nearest);
  json["fastest"] = is_mesh ? nlohmann::ordered_json() : compared_json(verdict.near.fastest);
  return json.dump() + "\n";
}

Result<std::string> search_plan_text(const GraphQuestion& q, const Cluster& cluster,
                                     const SearchAnswer& answer, const MeshVerdict& verdict,
                                     bool compressed) {
  if (!verdict.why.empty()) return not_written(verdict.why);
  if (!is_train_model(q)) return not_written("--graph " + q.graph + " is none of its models");
  const GraphMesh& mesh = verdict.mesh;
  MeshPlan plan{.mesh = to_string(mesh),
                .step_seconds = seconds_of(answer.time),
                .rates = rates_text(cluster),
                .profiles = used_profiles(cluster)};
  for (const std::int64_t bytes : answer.time.memory) {
    plan.memory_bytes = std::max(plan.memory_bytes, bytes);
  }
  plan.train = model_flags_of_train(model_question(q), true);
  const auto add = [&plan](const char* name, const std::string& value) {
    plan.train.emplace_back(name, value);
  };
  add("parallel", "\"" + to_string(mesh) + "\"");
  add("batch", std::to_string(q.batch));
  add("accumulate", std::to_string(answer.accumulate));
  if (!compressed) add("compressor", "\"none\"");
  add("precision", "\"fp32\"");
  add("optimizer", "\"adamw\"");
  return plan_file_text(plan);
}

}  // namespace gradwire
