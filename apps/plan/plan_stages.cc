#include "apps/plan/plan_stages.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "apps/plan/plan_model.h"
#include "apps/sim/pipeline_choice.h"
#include "base/text.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/parameters.h"
#include "trainer/pipeline/generate.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {
namespace {

MemoryRow row_of(const RunMemory& memory) {
  const auto bytes = [&memory](MemoryClass what) {
    return static_cast<double>(memory.device[static_cast<std::size_t>(what)]);
  };
  MemoryRow row;
  row.params = bytes(MemoryClass::kParameters);
  row.grads = bytes(MemoryClass::kGradients) + bytes(MemoryClass::kMainGradients);
  row.optimizer = bytes(MemoryClass::kMaster) + bytes(MemoryClass::kMoments);
  row.gathered = bytes(MemoryClass::kGathered);
  row.activations = bytes(MemoryClass::kActivations);
  row.workspace = bytes(MemoryClass::kWorkspace) + bytes(MemoryClass::kOther);
  row.messages = bytes(MemoryClass::kMessages);
  row.versions = bytes(MemoryClass::kVersions);
  return row;
}

PlanRank rank_of(const PipelineSchedule& schedule, int number) {
  PlanRank rank;
  rank.rank = number;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const auto is_here = [&](const std::vector<int>& ranks) {
      return ranks[static_cast<std::size_t>(stage)] == number;
    };
    if (std::ranges::none_of(schedule.rank_of, is_here)) continue;
    rank.stages.push_back(stage);
    rank.contexts +=
        static_cast<int>(most_contexts(schedule.ranks[static_cast<std::size_t>(number)], stage));
  }
  return rank;
}

// A model of which the number of parameters alone is known, divided evenly.
Status add_even_ranks(const PlanQuestion& q, const PipelineSchedule& schedule, PlanRanks& ranks) {
  for (int stage = 0; stage < zero_stages(q); ++stage) {
    GW_ASSIGN(MemoryQuestion asked, memory_question(q, stage));
    asked.tensor_ranks = asked.pipeline_stages = 1;
    for (int number = 0; number < schedule.size(); ++number) {
      PlanRank rank = rank_of(schedule, number);
      rank.params =
          q.params / q.parallel.tp * static_cast<double>(rank.stages.size()) / schedule.stages();
      asked.params = rank.params;
      // From a stage's first operation of a step to its last one.
      asked.gathered_params = rank.params;
      rank.bytes = training_memory(asked);
      ranks[static_cast<std::size_t>(stage)].push_back(std::move(rank));
    }
  }
  return {};
}

// Ranks of tp among which is one that holds most: the last one has the longest part of each tensor
// (even_part()), of tiles at the edges of a grid and inside of it there is one each.
std::vector<int> largest_ranks(const ParallelSpec& spec) {
  if (spec.layout.kind != TensorLayout::Kind::kSpatial) return {spec.tp - 1};
  const auto places = [](int size) { return std::set<int>{0, std::min(1, size - 1), size - 1}; };
  std::vector<int> ranks;
  for (const int row : places(spec.layout.rows)) {
    for (const int column : places(spec.layout.columns)) {
      ranks.push_back(row * spec.layout.columns + column);
    }
  }
  return ranks;
}

// A model of --image: one row, of the rank that holds most.
Status add_image_rank(const PlanQuestion& q, PlanRanks& ranks) {
  for (const int place : largest_ranks(q.parallel)) {
    GW_ASSIGN(const Model<float> part, plan_model(q, q.parallel.share(place)));
    for (int stage = 0; stage < kZeroStages; ++stage) {
      GW_ASSIGN(const RunMemoryQuestion asked, plan_run(q, stage));
      GW_ASSIGN(const RunMemory memory, run_memory(part, asked));
      PlanRank rank;
      rank.params = static_cast<double>(parameter_elems(part.parameters()));
      rank.bytes = row_of(memory);
      std::vector<PlanRank>& most = ranks[static_cast<std::size_t>(stage)];
      if (most.empty() || rank.bytes.total() > most.front().bytes.total()) most.assign(1, rank);
    }
  }
  return {};
}

// The last one of the ranks that share tensors, which has the longest part of each (even_part()).
Result<Model<float>> largest_share(const PlanQuestion& q) {
  return plan_model(
      q,
      {.ranks = q.parallel.tp, .rank = q.parallel.tp - 1, .sequence = q.parallel.layout.sequence});
}

PlanRank rank_of(const StagePlan& plan, const RunMemory& memory, const Model<float>& part) {
  PlanRank rank = rank_of(plan.schedule, plan.rank);
  rank.params = static_cast<double>(parameter_elems(part.parameters()));
  rank.bytes = row_of(memory);
  for (const LayerRange& range : plan.layers()) {
    rank.layers.push_back(format("%zu-%zu", range.begin, range.end - 1));
  }
  return rank;
}

// Without a flush: a stage has as many contexts as there are stages from it on, and versions of its
// weights.
Status add_stream_ranks(const PlanQuestion& q, const StreamRule& rule, PlanRanks& ranks) {
  if (q.transformer.layers == 0) {
    GW_ASSIGN(const PipelineSchedule schedule,
              generate_pipeline({.kind = PipelineKind::kOneFOneB}, rule.ranks, rule.window()));
    GW_TRY(add_even_ranks(q, schedule, ranks));
    for (std::vector<PlanRank>& of_stage : ranks) {
      for (PlanRank& rank : of_stage) {
        rank.bytes.versions = (rule.most_versions(rank.rank) - 1) * sizeof(float) * rank.params;
      }
    }
    return {};
  }
  GW_ASSIGN(const Model<float> model, plan_model(q));
  GW_ASSIGN(const Model<float> shared, largest_share(q));
  for (int number = 0; number < rule.ranks; ++number) {
    GW_ASSIGN(const StagePlan plan, plan_stream(model, rule, number));
    const Model<float> part = shared.part(plan.layers());
    for (int stage = 0; stage < zero_stages(q); ++stage) {
      GW_ASSIGN(RunMemoryQuestion asked, plan_run(q, stage));
      asked.stages = &plan;
      GW_ASSIGN(const RunMemory memory, run_memory(part, asked));
      ranks[static_cast<std::size_t>(stage)].push_back(rank_of(plan, memory, part));
    }
  }
  return {};
}

}  // namespace

Result<PlanRanks> plan_ranks(const PlanQuestion& q) {
  PlanRanks ranks;
  if (q.model != "gpt") {
    GW_TRY(add_image_rank(q, ranks).with_context("plan: --parallel " + to_string(q.parallel)));
    return ranks;
  }
  if (!q.parallel.has_stages()) return ranks;
  if (const auto rule = q.parallel.stream_rule(static_cast<int>(q.accumulate))) {
    GW_TRY(add_stream_ranks(q, *rule, ranks)
               .with_context("plan: --parallel " + to_string(q.parallel)));
    return ranks;
  }
  GW_ASSIGN(
      const PipelineSchedule schedule,
      choose_pipeline(to_string(q.parallel.order), q.parallel.pp, static_cast<int>(q.accumulate)));
  if (q.transformer.layers == 0) {
    GW_TRY(add_even_ranks(q, schedule, ranks));
    return ranks;
  }
  GW_ASSIGN(const Model<float> model, plan_model(q));
  GW_ASSIGN(const Model<float> shared, largest_share(q));
  const int stages = zero_stages(q);
  for (const bool gathers : {false, true}) {
    if (gathers && stages < kZeroStages) break;
    const Status planned =
        for_each_stage_plan(model, schedule, {}, gathers, [&](const StagePlan& plan) {
          const Model<float> part = shared.part(plan.layers());
          for (int stage = gathers ? 3 : 0; stage < (gathers ? stages : std::min(stages, 3));
               ++stage) {
            GW_ASSIGN(RunMemoryQuestion asked, plan_run(q, stage));
            asked.stages = &plan;
            GW_ASSIGN(const RunMemory memory, run_memory(part, asked));
            ranks[static_cast<std::size_t>(stage)].push_back(rank_of(plan, memory, part));
          }
          return Status();
        });
    GW_TRY(planned.with_context("plan: --parallel " + to_string(q.parallel)));
  }
  return ranks;
}

}  // namespace gradwire
