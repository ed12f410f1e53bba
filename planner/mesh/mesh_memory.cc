#include "planner/mesh/mesh_memory.h"

#include <numeric>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

StreamRule stream_of(const MeshChoice& choice) {
  using Versions = StreamRule::Versions;
  const Versions versions = choice.order.kind == PipelineKind::kPipeDream2BW ? Versions::kDelayed
                            : choice.order.vertical_sync                     ? Versions::kInSync
                                                                             : Versions::kNewest;
  return {choice.pp, choice.accumulate, versions};
}

RunMemoryQuestion question_of(const MeshProblem& problem, const MeshChoice& choice) {
  RunMemoryQuestion asked;
  asked.micro_batch = choice.micro_batch;
  asked.accumulate = choice.accumulate / choice.pipes();
  asked.recompute = choice.recompute;
  asked.precision = problem.precision;
  asked.optimizer = problem.optimizer;
  asked.momentum = problem.momentum;
  asked.stage = choice.zero;
  asked.ranks = choice.dp * choice.pipes();
  asked.main_gradients = problem.main_gradients;
  // fp16 has a loss scale, which wants whole gradients where what is sent cannot bear it.
  asked.whole_gradients = problem.precision == Precision::kF16 && choice.compressor != "none";
  asked.labels = problem.labels;
  return asked;
}

}  // namespace

std::int64_t MeshRankMemory::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

Status MeshMemory::plan(const MeshChoice& choice) {
  const bool gathers = choice.zero == 3;
  const std::string asked = format("%d/%s %d %d", choice.pp, choice.order.text().c_str(),
                                   choice.accumulate, gathers ? 1 : 0);
  if (asked == planned_) return planning_;
  planned_ = asked;
  plans_.clear();
  planning_ = [&]() -> Status {
    GW_ASSIGN(const Model<float>* const model, problem_.model->part(1, choice.has_flush()));
    if (!choice.has_flush()) {
      for (int rank = 0; rank < choice.pp; ++rank) {
        GW_ASSIGN(StagePlan plan, plan_stream(*model, stream_of(choice), rank));
        plans_.push_back(std::move(plan));
      }
      return {};
    }
    GW_ASSIGN(const PipelineSchedule schedule,
              generate_pipeline(choice.order, choice.pp, choice.accumulate));
    return for_each_stage_plan(*model, schedule, {}, gathers, [&](const StagePlan& plan) {
      plans_.push_back(plan);
      return Status();
    });
  }();
  return planning_;
}

Result<std::vector<MeshRankMemory>> MeshMemory::of(const MeshChoice& choice) {
  GW_ASSIGN(const Model<float>* const part, problem_.model->part(choice.tp, choice.has_flush()));
  std::vector<MeshRankMemory> ranks;
  RunMemoryQuestion asked = question_of(problem_, choice);
  const auto add = [&](const Model<float>& held, std::vector<int> stages) -> Status {
    GW_ASSIGN(const RunMemory memory, run_memory(held, asked));
    std::int64_t parameters = 0;
    for (const ParameterInfo& one : held.parameters()) parameters += one.shape.elems();
    ranks.push_back({static_cast<int>(ranks.size()), std::move(stages), parameters, memory.device});
    return {};
  };
  if (choice.pp == 1) {
    GW_TRY(add(*part, {0}));
    return ranks;
  }
  GW_TRY(plan(choice));
  for (const StagePlan& plan : plans_) {
    asked.stages = &plan;
    std::vector<int> stages;
    for (const StagePlace& place : plan.stages) stages.push_back(place.stage);
    GW_TRY(add(part->part(plan.layers()), std::move(stages)));
  }
  return ranks;
}

}  // namespace gradwire
