#include "apps/plan/plan_mesh.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "apps/bench/row_file.h"
#include "apps/plan/plan_file.h"
#include "apps/plan/plan_mesh_page.h"
#include "apps/plan/plan_mesh_text.h"
#include "apps/plan/plan_model.h"
#include "apps/plan/read_cluster.h"
#include "apps/progress.h"
#include "apps/whole_file.h"
#include "base/text.h"
#include "gradwire/registry.h"

namespace gradwire {
namespace {

constexpr double kSecondsOfOne = 1e-9;

// Of images ranks divide a micro-batch's samples.
bool divides_samples(const PlanQuestion& q) { return search_layout(q) == "hybrid"; }

MeshModel model_of(const PlanQuestion& q) {
  return MeshModel([&q](const TensorShare& share, bool flush) {
    PlanQuestion asked = q;
    if (!flush) {  // ends are not tied then
      asked.parallel.pp = 2;
      asked.parallel.order.kind = PipelineOrder::Kind::kPipeDream;
    }
    TensorShare how = share;
    if (divides_samples(q)) how.layout = TensorShare::Layout::kSamples;
    return plan_model(asked, how);
  });
}

Result<MeshProblem> problem_of(const PlanQuestion& q, const Cluster& cluster, MeshModel& model,
                               const MeshRates& rates) {
  MeshProblem problem{.cluster = &cluster, .model = &model, .rates = &rates};
  problem.batch = q.mesh.batch;
  problem.device_mem = q.device_mem;
  problem.optimizer = q.optimizer == "momentum" ? "sgd" : q.optimizer;
  if (q.optimizer == "sgd") problem.momentum = 0;
  GW_ASSIGN(problem.precision, parse_precision(q.precision));
  problem.main_gradients = !q.no_main_grads;
  problem.labels = q.model == "gpt" ? q.transformer.sequence : 1;
  GW_ASSIGN(problem.compressors, parse_spec_list(q.mesh.compressors));
  for (std::size_t i = 0; i < problem.compressors.size(); ++i) {
    const auto end = problem.compressors.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(problem.compressors.begin(), end, problem.compressors[i]) == end) continue;
    return Status(Code::kInvalidArgument,
                  "plan: --compressors has '" + problem.compressors[i] + "' twice (expected once)");
  }
  problem.layout = search_layout(q);
  problem.allow_stale = q.mesh.allow_stale;
  return problem;
}

MeshPlan file_of(const PlanQuestion& q, const MeshProblem& problem, const MeshAnswer& answer) {
  MeshPlan file{.mesh = to_string(answer.choice),
                .step_seconds = static_cast<double>(answer.ticks) * kSecondsOfOne,
                .memory_bytes = answer.most_memory(),
                .rates = rates_text(*problem.cluster),
                .stale = !answer.choice.has_flush(),
                .profiles = used_profiles(*problem.cluster)};
  const auto add = [&file](const char* name, const std::string& value) {
    file.train.emplace_back(name, value);
  };
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  for (const auto& [name, value] : model_flags_of_train(q, answer.choice.has_flush())) {
    add(name.c_str(), value);
  }
  add("parallel", quoted_toml(parallel_text(answer.choice)));
  add("batch", number(q.mesh.batch));
  add("accumulate", number(answer.choice.accumulate));
  add("recompute", quoted_toml(answer.choice.recompute));
  add("compressor", quoted_toml(answer.choice.compressor));
  add("precision", quoted_toml(q.precision));
  if (q.no_main_grads) add("no-main-grads", "true");
  add("optimizer", quoted_toml(q.optimizer == "momentum" ? "sgd" : q.optimizer));
  if (q.optimizer == "sgd") add("momentum", "0");
  if (q.optimizer == "momentum" || q.optimizer == "nesterov") {
    add("momentum", shortest(problem.momentum));
  }
  return file;
}

std::string heading_of(const PlanQuestion& q, const Cluster& cluster) {
  return format("%.4g parameters, %s, %s; a step of %lld samples on %d devices%s%s; %s\n", q.params,
                q.precision.c_str(), q.optimizer.c_str(), static_cast<long long>(q.mesh.batch),
                cluster.devices(), cluster.name.empty() ? "" : " of ", cluster.name.c_str(),
                rates_text(cluster).c_str());
}

// Neighbours of a row, the fastest first.
Result<std::vector<MeshAnswer>> near_answers(const MeshProblem& problem, const MeshAnswer& row) {
  GW_ASSIGN(const MeshChoices choices, mesh_choices(problem));
  std::vector<MeshAnswer> near;
  const std::vector<MeshChoice> others = mesh_neighbours(choices.all, row.choice);
  if (others.empty()) return near;
  Progress progress(stderr, Progress::style_for(stderr), "neighbours",
                    static_cast<std::int64_t>(others.size()));
  std::int64_t done = 0;
  for (const MeshChoice& other : others) {
    auto answer = answer_mesh(problem, other);
    progress.update(++done, brief_parallel_text(other));
    if (answer.has_value()) near.push_back(std::move(answer.value()));
  }
  std::ranges::stable_sort(near, {}, &MeshAnswer::ticks);
  return near;
}

struct Shown {
  std::string text;
  std::string lines;
};

Status show(const PlanQuestion& q, const Shown& shown) {
  if (q.json == kStandardOutput) {
    std::printf("%s", shown.lines.c_str());
    return {};
  }
  std::printf("%s", shown.text.c_str());
  return q.json.empty() ? Status() : write_whole_file(q.json, shown.lines);
}

const char* name_of(MeshSearchPart part) {
  switch (part) {
    case MeshSearchPart::kListed: return "listing meshes";
    case MeshSearchPart::kBounded: return "bounds of meshes";
    case MeshSearchPart::kTried: break;
  }
  return "meshes";
}

Result<MeshSearchResult> searched(const PlanQuestion& q, const MeshProblem& problem) {
  std::optional<Progress> progress;
  MeshSearchOptions options{.rows = static_cast<int>(std::max(q.mesh.rows, q.mesh.why))};
  MeshProblem asked = problem;
  if (q.mesh.given.any()) {
    GW_ASSIGN(options.among, given_choices(problem, q.mesh.given));
    // A run of it has its own stages, whether or not they fit.
    if (q.mesh.given.parallel) asked.cuts_stages = false;
  }
  std::optional<MeshSearchPart> part;
  std::chrono::steady_clock::time_point began;
  options.progress = [&](const MeshSearchProgress& at) {
    const bool tries = at.part == MeshSearchPart::kTried;
    if (part != at.part) {
      part = at.part;
      began = std::chrono::steady_clock::now();
      progress.emplace(stderr, Progress::style_for(stderr), name_of(at.part), at.all,
                       tries ? 12 : 4, tries ? Progress::Unit::kPercent : Progress::Unit::kCount);
    }
    // What comes before the first simulation takes seconds on large clusters alone.
    const bool is_long = std::chrono::steady_clock::now() - began > std::chrono::seconds(1);
    if (is_long || tries) progress->update(at.done, at.best);
  };
  return search_mesh(asked, options);
}

}  // namespace

Status plan_mesh(const PlanQuestion& q) {
  GW_ASSIGN(const Cluster cluster, read_cluster(q.mesh.cluster));
  MeshModel model = model_of(q);
  const ClusterRates rates;
  GW_ASSIGN(const MeshProblem problem, problem_of(q, cluster, model, rates));
  auto found = searched(q, problem);
  if (!found.has_value()) return found.error().with_context("plan: --cluster " + q.mesh.cluster);
  MeshSearchResult& result = found.value();
  const std::string heading = heading_of(q, cluster);
  const auto rows = static_cast<std::int64_t>(result.rows.size());
  if (q.mesh.why > rows) {
    return {Code::kInvalidArgument,
            format("plan: --why %lld of %lld rows", static_cast<long long>(q.mesh.why),
                   static_cast<long long>(rows))};
  }
  const std::int64_t asked = std::max<std::int64_t>(q.mesh.why, 1) - 1;
  const MeshAnswer& row = result.rows[static_cast<std::size_t>(asked)];
  Shown shown{heading + mesh_table(result), mesh_lines(result)};
  std::vector<MeshAnswer> near;
  if (q.mesh.why > 0 || !q.mesh.html.empty()) {
    GW_ASSIGN(near, near_answers(problem, row));
  }
  if (q.mesh.why > 0) {
    shown.text += "\n" + why_text(q.mesh.why, row, near);
    shown.lines += why_lines(row, near);
  }
  GW_TRY(show(q, shown));
  if (!q.mesh.html.empty()) {
    GW_ASSIGN(const std::string page, mesh_page(problem, {heading, result, row, near}));
    GW_TRY(write_whole_file(q.mesh.html, page));
  }
  if (q.mesh.write.empty()) return {};
  return write_whole_file(q.mesh.write, plan_file_text(file_of(q, problem, row)));
}

}  // namespace gradwire
