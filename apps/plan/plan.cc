#include "apps/plan/plan.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/bench/row_file.h"
#include "apps/plan/plan_explained.h"
#include "apps/plan/plan_explained_text.h"
#include "apps/plan/plan_mesh.h"
#include "apps/plan/plan_rows.h"
#include "apps/plan/plan_search.h"
#include "apps/sim/sim_text.h"
#include "apps/whole_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

std::string amount(double bytes) { return size_text(static_cast<std::int64_t>(bytes)); }

// A column of schedules without a flush alone.
std::string versions_of(const PlanQuestion& q, const std::string& text) {
  return has_flush(q) ? std::string() : format(" %12s", text.c_str());
}

std::string heading(const PlanQuestion& q) {
  const MeshSizes sizes{q.parallel.pp, static_cast<int>(q.data_ranks), q.parallel.tp};
  return format("%.4g parameters, %s, %s; %s = %lld ranks\n", q.params, q.precision.c_str(),
                q.optimizer.c_str(), to_string(sizes).c_str(),
                static_cast<long long>(sizes.ranks()));
}

void print_memory(const PlanQuestion& q, const std::vector<PlanMemory>& rows) {
  const bool staged = q.parallel.has_stages();
  const auto messages = [staged](const std::string& text) {
    return staged ? format(" %12s", text.c_str()) : std::string();
  };
  const char* which = "";
  if (staged) {
    which = ", the one of the pipeline that needs most";
  } else if (q.model != "gpt" && q.parallel.tp > 1) {
    which = ", the one of those that share the model that needs most";
  }
  std::printf("\nMemory of a rank%s\n", which);
  std::printf("%-7s %12s %12s %12s %12s %12s %12s%s%s %12s %9s %8s\n", "zero", "parameters",
              "gradients", "optimizer", "gathered", "activations", "workspace",
              messages("messages").c_str(), versions_of(q, "versions").c_str(), "total", "B/param",
              "saving");
  for (const PlanMemory& row : rows) {
    const MemoryRow& b = row.bytes;
    std::printf("%-7s %12s %12s %12s %12s %12s %12s%s%s %12s %9.4g %7.4gx%s\n",
                format("%d%s", row.stage, row.stage == q.zero ? " *" : "").c_str(),
                amount(b.params).c_str(), amount(b.grads).c_str(), amount(b.optimizer).c_str(),
                amount(b.gathered).c_str(), amount(b.activations).c_str(),
                amount(b.workspace).c_str(), messages(amount(b.messages)).c_str(),
                versions_of(q, amount(b.versions)).c_str(), amount(b.total()).c_str(),
                row.state_per_param, row.saving, row.fits ? "" : "  does not fit");
  }
  if (rows.front().bytes.activations == 0) {
    std::printf(
        "activations are not included; they need --layers, --width, --heads and --sequence\n");
  }
  if (q.model != "gpt") {
    std::printf("as gradwire train holds %s of these sizes, whose activations are in fp32\n",
                q.model.c_str());
  }
}

void print_ranks(const PlanQuestion& q, const std::vector<PlanRank>& rows) {
  if (!q.parallel.has_stages()) return;
  std::printf("\nMemory of the ranks of a pipeline, %s with %lld micro-batches, zero %lld\n",
              to_string(q.parallel.order).c_str(), static_cast<long long>(q.accumulate),
              static_cast<long long>(q.zero));
  const bool has_layers = q.transformer.layers > 0;
  const auto with_layers = [&](const std::string& text) {
    return has_layers ? format(" %-12s", text.c_str()) : std::string();
  };
  std::printf("%-5s %-12s%s %9s %12s %12s %12s %12s %12s %12s %12s%s %12s\n", "rank", "stages",
              with_layers("layers").c_str(), "contexts", "parameters", "gradients", "optimizer",
              "gathered", "activations", "workspace", "messages",
              versions_of(q, "versions").c_str(), "total");
  for (const PlanRank& row : rows) {
    std::string stages;
    for (const int stage : row.stages) {
      stages += (stages.empty() ? "" : ",") + std::to_string(stage);
    }
    std::string layers;
    for (const std::string& range : row.layers) layers += (layers.empty() ? "" : ",") + range;
    const MemoryRow& b = row.bytes;
    std::printf("%-5d %-12s%s %9d %12s %12s %12s %12s %12s %12s %12s%s %12s\n", row.rank,
                stages.c_str(), with_layers(layers).c_str(), row.contexts, amount(b.params).c_str(),
                amount(b.grads).c_str(), amount(b.optimizer).c_str(), amount(b.gathered).c_str(),
                amount(b.activations).c_str(), amount(b.workspace).c_str(),
                amount(b.messages).c_str(), versions_of(q, amount(b.versions)).c_str(),
                amount(b.total()).c_str());
  }
  if (has_layers) {
    std::printf("as gradwire train holds a gpt of this shape, whose activations are in fp32\n");
  }
}

std::string rank_lines(const PlanQuestion& q, const std::vector<PlanRank>& rows) {
  if (!q.parallel.has_stages()) return {};
  std::string text;
  for (const PlanRank& row : rows) {
    nlohmann::ordered_json json;
    json["kind"] = "rank";
    json["zero"] = q.zero;
    json["rank"] = row.rank;
    json["stages"] = row.stages;
    json["layers"] = row.layers;
    json["contexts"] = row.contexts;
    json["params"] = row.params;
    json["params_bytes"] = row.bytes.params;
    json["grads_bytes"] = row.bytes.grads;
    json["optimizer_bytes"] = row.bytes.optimizer;
    json["gathered_bytes"] = row.bytes.gathered;
    json["activation_bytes"] = row.bytes.activations;
    json["workspace_bytes"] = row.bytes.workspace;
    json["message_bytes"] = row.bytes.messages;
    json["version_bytes"] = row.bytes.versions;
    json["total_bytes"] = row.bytes.total();
    text += json.dump() + "\n";
  }
  return text;
}

void print_cost(const PlanQuestion& q, const std::vector<PlanStep>& steps) {
  std::printf(
      "\nCommunication per step between %lld data-parallel ranks; alpha %s, beta %.4g ns/B\n",
      static_cast<long long>(replicas(q)), time_text(q.links.alpha).c_str(), q.links.beta * 1e9);
  std::printf("%-32s %12s %12s  %s\n", "zero", "a rank sends", "time", "by");
  for (const PlanStep& step : steps) {
    std::string by;
    for (const PlanTraffic& one : step.traffic) {
      by += (by.empty() ? "" : "; ") + one.what + " (" + one.algorithm + ")";
    }
    const bool asked = step.name == std::to_string(q.zero);
    std::printf("%-32s %12s %12s  %s\n", (step.name + (asked ? " *" : "")).c_str(),
                amount(step.wire_bytes()).c_str(), time_text(step.seconds()).c_str(), by.c_str());
  }
  std::printf("times are sums, without overlap with computation\n");
}

std::string memory_lines(const std::vector<PlanMemory>& rows) {
  std::string text;
  for (const PlanMemory& row : rows) {
    nlohmann::ordered_json json;
    json["kind"] = "memory";
    json["zero"] = row.stage;
    json["params_bytes"] = row.bytes.params;
    json["grads_bytes"] = row.bytes.grads;
    json["optimizer_bytes"] = row.bytes.optimizer;
    json["gathered_bytes"] = row.bytes.gathered;
    json["activation_bytes"] = row.bytes.activations;
    json["workspace_bytes"] = row.bytes.workspace;
    json["message_bytes"] = row.bytes.messages;
    json["version_bytes"] = row.bytes.versions;
    json["total_bytes"] = row.bytes.total();
    json["state_bytes_per_param"] = row.state_per_param;
    json["saving"] = row.saving;
    json["fits"] = row.fits;
    text += json.dump() + "\n";
  }
  return text;
}

std::string cost_lines(const std::vector<PlanStep>& steps) {
  std::string text;
  for (const PlanStep& step : steps) {
    for (const PlanTraffic& one : step.traffic) {
      nlohmann::ordered_json json;
      json["kind"] = "cost";
      json["zero"] = step.name;
      json["what"] = one.what;
      json["algorithm"] = one.algorithm;
      json["wire_bytes"] = one.wire_bytes;
      json["seconds"] = one.seconds;
      text += json.dump() + "\n";
    }
  }
  return text;
}

Status fits(const PlanQuestion& q, const std::vector<PlanMemory>& rows) {
  const PlanMemory& asked = rows[static_cast<std::size_t>(q.zero)];
  if (asked.fits) return {};
  std::string others;
  for (const PlanMemory& row : rows) {
    if (row.fits) others += (others.empty() ? "" : ", ") + std::to_string(row.stage);
  }
  return {Code::kInvalidArgument,
          format("plan: --zero %lld needs %s on each rank (got --device-mem %s; %s)",
                 static_cast<long long>(q.zero), amount(asked.bytes.total()).c_str(),
                 size_text(q.device_mem).c_str(),
                 others.empty() ? "no stage fits" : ("fits at --zero " + others).c_str())};
}

constexpr std::array kBelow{
    Command{"search", "searchers for placements and stages, side by side", plan_search_command}};

}  // namespace

const CommandGroup& plan_group() {
  static const CommandGroup group{.name = "plan",
                                  .word = "OPERATION",
                                  .purpose = "Estimates and searches, by arithmetic.",
                                  .commands = kBelow,
                                  .example = "gradwire plan search --help"};
  return group;
}

Result<int> plan_command(const std::vector<std::string>& args) {
  if (!args.empty() && args.front() == kBelow.front().name) return run_group(plan_group(), args);
  PlanQuestion q;
  GW_ASSIGN(const auto outcome, read_plan_flags(args, q));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (!q.mesh.cluster.empty()) {
    GW_TRY(plan_mesh(q));
    return 0;
  }
  GW_ASSIGN(const PlanRanks by_stage, plan_ranks(q));
  GW_ASSIGN(const std::vector<PlanMemory> memory, plan_memory(q, by_stage));
  GW_ASSIGN(const std::vector<PlanStep> steps, plan_steps(q, by_stage));
  PlanExplained explained;
  if (q.explain) {
    GW_ASSIGN(explained, explain_plan(q));
  }
  const std::vector<PlanRank>& ranks = by_stage[static_cast<std::size_t>(q.zero)];
  const std::string rows =
      (q.memory ? memory_lines(memory) + rank_lines(q, ranks) : std::string()) +
      (q.cost ? cost_lines(steps) : std::string()) +
      (q.explain ? explained_lines(explained) : std::string());
  if (q.json == kStandardOutput) {
    std::printf("%s", rows.c_str());
  } else {
    std::printf("%s", heading(q).c_str());
    if (q.memory) print_memory(q, memory);
    if (q.memory) print_ranks(q, ranks);
    if (q.cost) print_cost(q, steps);
    if (q.memory || q.cost) std::printf("* the stage of --zero\n");
    if (q.explain) print_explained(q, explained);
    if (!q.json.empty()) GW_TRY(write_whole_file(q.json, rows));
  }
  GW_TRY(fits(q, memory));
  return 0;
}

}  // namespace gradwire
