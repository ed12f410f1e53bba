#include "apps/plan/plan_stages.h"

#include <algorithm>
#include <cstddef>

#include "apps/sim/pipeline_choice.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/models.h"
#include "trainer/parameters.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {
namespace {

// The bundled model of that shape; shapes alone, so that any size may be asked about.
Result<Model<float>> model_of(const TransformerShape& shape, const TensorShare& share) {
  ModelOptions options{"gpt"};
  options.width = shape.width;
  options.layers = shape.layers;
  options.heads = shape.heads;
  options.tied = true;  // as transformer_params() counts
  options.share = share;
  return make_model<float>(options, {shape.sequence, 1, 1},
                           std::max<std::int64_t>(shape.vocabulary, 1));
}

Result<RunMemoryQuestion> run_question(const PlanQuestion& q, int stage) {
  GW_ASSIGN(const MemoryQuestion asked, memory_question(q, stage));
  RunMemoryQuestion run;
  run.micro_batch = q.transformer.batch;
  run.accumulate = static_cast<int>(q.accumulate);
  run.recompute = q.recompute;
  GW_ASSIGN(run.precision, parse_precision(q.precision));
  run.optimizer = q.optimizer == "momentum" ? "sgd" : q.optimizer;
  if (q.optimizer == "sgd") run.momentum = 0;
  run.stage = stage;
  run.ranks = static_cast<int>(q.data_ranks);
  run.main_gradients = !q.no_main_grads;
  run.whole_gradients = asked.whole_gradients;
  run.labels = q.transformer.sequence;
  return run;
}

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
  return row;
}

PlanRank rank_of(const PipelineSchedule& schedule, int number) {
  PlanRank rank;
  rank.rank = number;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    if (schedule.rank_of.front()[static_cast<std::size_t>(stage)] != number) continue;
    rank.stages.push_back(stage);
    rank.contexts +=
        static_cast<int>(most_contexts(schedule.ranks[static_cast<std::size_t>(number)], stage));
  }
  return rank;
}

// A model of which the number of parameters alone is known, divided evenly.
Status add_even_ranks(const PlanQuestion& q, const PipelineSchedule& schedule, PlanRanks& ranks) {
  for (int stage = 0; stage < kZeroStages; ++stage) {
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

}  // namespace

Result<PlanRanks> plan_ranks(const PlanQuestion& q) {
  PlanRanks ranks;
  if (q.parallel.pp == 1) return ranks;
  GW_ASSIGN(
      const PipelineSchedule schedule,
      choose_pipeline(to_string(q.parallel.order), q.parallel.pp, static_cast<int>(q.accumulate)));
  if (q.transformer.layers == 0) {
    GW_TRY(add_even_ranks(q, schedule, ranks));
    return ranks;
  }
  GW_ASSIGN(const Model<float> model, model_of(q.transformer, {}));
  // Of the ranks that share tensors the last one, which has the longest part of each (even_part()).
  GW_ASSIGN(const Model<float> shared,
            model_of(q.transformer, {.ranks = q.parallel.tp,
                                     .rank = q.parallel.tp - 1,
                                     .sequence = q.parallel.layout.sequence}));
  for (const bool gathers : {false, true}) {
    const Status planned =
        for_each_stage_plan(model, schedule, {}, gathers, [&](const StagePlan& plan) {
          const Model<float> part = shared.part(plan.layers());
          for (int stage = gathers ? 3 : 0; stage < (gathers ? kZeroStages : 3); ++stage) {
            GW_ASSIGN(RunMemoryQuestion asked, run_question(q, stage));
            asked.stages = &plan;
            GW_ASSIGN(const RunMemory memory, run_memory(part, asked));
            PlanRank rank = rank_of(schedule, plan.rank);
            rank.params = static_cast<double>(parameter_elems(part.parameters()));
            rank.bytes = row_of(memory);
            ranks[static_cast<std::size_t>(stage)].push_back(std::move(rank));
          }
          return Status();
        });
    GW_TRY(planned.with_context("plan: --parallel " + to_string(q.parallel)));
  }
  return ranks;
}

}  // namespace gradwire
