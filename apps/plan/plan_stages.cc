#include "apps/plan/plan_stages.h"

#include <cstddef>

#include "apps/sim/pipeline_choice.h"
#include "base/text.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/message_room.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {
namespace {

constexpr double kFp32Bytes = 4;

// A stage of a transformer: the first stages have a layer more where they do not come out even; the
// embeddings are the first one's, the last norm and the head the last one's.
TransformerShape stage_shape(const TransformerShape& whole, int stage, int stages) {
  TransformerShape shape = whole;
  shape.layers = whole.layers / stages + (stage < whole.layers % stages ? 1 : 0);
  return shape;
}

double stage_params(const TransformerShape& whole, int stage, int stages) {
  TransformerShape layers = stage_shape(whole, stage, stages);
  layers.vocabulary = layers.sequence = 0;
  const auto h = static_cast<double>(whole.width);
  const double norm = 2 * h;
  double params = transformer_params(layers) - norm;
  if (stage == 0) params += static_cast<double>(whole.vocabulary + whole.sequence) * h;
  if (stage == stages - 1) params += norm + static_cast<double>(whole.vocabulary) * h;
  return params;
}

}  // namespace

Result<std::vector<PlanRank>> plan_ranks(const PlanQuestion& q) {
  GW_ASSIGN(
      const PipelineSchedule schedule,
      choose_pipeline(to_string(q.parallel.order), q.parallel.pp, static_cast<int>(q.accumulate)));
  GW_ASSIGN(const PipelineSchedule lowered, lower_pipeline(schedule, PipelineLinks::kTagged));
  GW_ASSIGN(const Recompute recompute, recompute_of(q.recompute));
  const TransformerShape& shape = q.transformer;
  const int stages = schedule.stages();
  if (shape.layers > 0 && shape.layers < stages) {
    return Status(Code::kInvalidArgument,
                  format("plan: --layers %lld in %d stages (expected at least one each)",
                         static_cast<long long>(shape.layers), stages));
  }
  const auto tp = static_cast<double>(q.parallel.tp);
  const double message = kFp32Bytes * static_cast<double>(shape.sequence) *
                         static_cast<double>(shape.batch) * static_cast<double>(shape.width);
  std::vector<PlanRank> ranks(static_cast<std::size_t>(schedule.size()));
  for (int stage = 0; stage < stages; ++stage) {
    const int holder = schedule.rank_of.front()[static_cast<std::size_t>(stage)];
    PlanRank& rank = ranks[static_cast<std::size_t>(holder)];
    rank.rank = holder;
    rank.stages.push_back(stage);
    const auto open =
        static_cast<int>(most_contexts(schedule.ranks[static_cast<std::size_t>(holder)], stage));
    rank.contexts += open;
    if (shape.layers == 0) {
      rank.params += q.params / tp / stages;
      continue;
    }
    rank.params += stage_params(shape, stage, stages) / tp;
    rank.activations +=
        open * activation_bytes(stage_shape(shape, stage, stages), recompute, q.parallel.tp);
    const MessageRoom room = message_room(lowered, holder);
    rank.messages += message * room.stages[static_cast<std::size_t>(stage)].all();
  }
  return ranks;
}

}  // namespace gradwire
