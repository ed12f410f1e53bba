#include "planner/mesh/mesh_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "planner/mesh/mesh_held.h"

namespace gradwire {
namespace {

StreamRule stream_of(const MeshChoice& choice) {
  using Versions = StreamRule::Versions;
  const Versions versions = choice.order.kind == PipelineKind::kPipeDream2BW ? Versions::kDelayed
                            : choice.order.vertical_sync                     ? Versions::kInSync
                                                                             : Versions::kNewest;
  return {choice.pp, choice.accumulate, versions, choice.order.layers};
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

// As a rank's ReducedGradients have them.
std::int64_t on_their_way(const MeshProblem& problem, const MeshChoice& choice,
                          const Model<float>& held) {
  if (choice.zero < 2 || choice.dp * choice.pipes() == 1) return 0;
  const std::int64_t element = problem.precision == Precision::kF32 ? 4 : 2;
  const auto bytes_of = [element](std::int64_t elems) { return element * elems; };
  std::int64_t largest = 0;
  for (std::size_t layer = 0; layer < held.layers(); ++layer) {
    const auto [first, end] = held.parameters_of(layer);
    std::int64_t elems = 0;
    for (int index = first; index < end; ++index) {
      elems += held.parameters()[static_cast<std::size_t>(index)].shape.elems();
    }
    largest = std::max(largest, bytes_of(elems));
  }
  return std::min(bytes_of(parameter_elems(held.parameters())),
                  kBucketsOnTheirWay * problem.bucket_bytes + largest);
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

Result<std::int64_t> MeshMemory::least(const MeshChoice& choice) {
  constexpr std::int64_t kFp32 = 4;
  GW_ASSIGN(const Model<float>* const part, problem_.model->part(choice.tp, choice.has_flush()));
  const bool narrow = problem_.precision != Precision::kF32;
  const std::int64_t stored = narrow ? 2 : kFp32;
  const bool averages = problem_.optimizer == "adamw" || problem_.optimizer == "lamb";
  const std::int64_t moments = averages ? 2 : problem_.momentum > 0 ? 1 : 0;
  // Two pipes have each stage on two ranks.
  const std::int64_t all = choice.pipes() * parameter_elems(part->parameters());
  const std::int64_t own = all / (choice.dp * choice.pipes());
  const auto held_from = [&](int stage) { return choice.zero >= stage ? own : all; };
  return stored * (held_from(3) + held_from(2)) +
         kFp32 * (moments + (narrow ? 1 : 0)) * held_from(1);
}

Result<std::int64_t> MeshMemory::held(const MeshChoice& choice, const MeshCompression& compression,
                                      const Model<float>& part,
                                      std::span<const LayerRange> layers) {
  std::vector<std::size_t> places;
  for (const LayerRange& range : layers) {
    places.push_back(range.begin);
    places.push_back(range.end);
  }
  const bool sums = choice.accumulate / choice.pipes() > 1;
  HeldKey key(choice.tp, choice.dp * choice.pipes(), choice.zero, sums, choice.has_flush(),
              choice.compressor, std::move(places));
  const auto known = held_.find(key);
  if (known != held_.end()) return known->second;
  GW_ASSIGN(const std::int64_t bytes, mesh_held(problem_, choice, compression, part));
  held_.emplace(std::move(key), bytes);
  return bytes;
}

Result<std::vector<MeshRankMemory>> MeshMemory::of(const MeshChoice& choice,
                                                   const MeshCompression& compression) {
  GW_ASSIGN(const Model<float>* const part, problem_.model->part(choice.tp, choice.has_flush()));
  std::vector<MeshRankMemory> ranks;
  RunMemoryQuestion asked = question_of(problem_, choice);
  const auto add = [&](const Model<float>& held_here, std::span<const LayerRange> layers,
                       std::vector<int> stages, std::vector<std::int64_t> contexts) -> Status {
    GW_ASSIGN(RunMemory memory, run_memory(held_here, asked));
    GW_ASSIGN(memory.device[static_cast<std::size_t>(MemoryClass::kCommunication)],
              held(choice, compression, held_here, layers));
    // Where gradients are whole for a while that is counted already.
    const std::int64_t more = memory.whole_sums ? 0 : on_their_way(problem_, choice, held_here);
    ranks.push_back({static_cast<int>(ranks.size()), std::move(stages), std::move(contexts),
                     parameter_elems(held_here.parameters()), memory.device, more});
    return {};
  };
  if (choice.pp == 1) {
    const LayerRange all = part->all();
    GW_TRY(add(*part, std::span(&all, 1), {0}, {}));
    return ranks;
  }
  GW_TRY(plan(choice));
  for (const StagePlan& plan : plans_) {
    asked.stages = &plan;
    std::vector<int> stages;
    std::vector<std::int64_t> contexts;
    for (const StagePlace& place : plan.stages) {
      stages.push_back(place.stage);
      contexts.push_back(static_cast<std::int64_t>(place.contexts));
    }
    const std::vector<LayerRange> layers = plan.layers();
    GW_TRY(add(part->part(layers), layers, std::move(stages), std::move(contexts)));
  }
  return ranks;
}

}  // namespace gradwire
