#include "trainer/pipeline/generators/generators.h"
#include "trainer/pipeline/stream_rule.h"

namespace gradwire {

PipelineSchedule stream_schedule(const StreamRule& rule, int steps) {
  PipelineSchedule schedule = looped_placement(rule.ranks, 1, rule.micro_batches * steps);
  for (int stage = 0; stage < rule.ranks; ++stage) {
    auto& ops = schedule.ranks[static_cast<std::size_t>(stage)];
    for (int step = 0; step < steps; ++step) {
      const std::vector<PipelineOp> own = rule.step(stage, step, steps, 0, 0);
      ops.insert(ops.end(), own.begin(), own.end());
    }
  }
  return schedule;
}

PipelineSchedule pipedream_schedule(int ranks, int micro_batches, bool vertical_sync) {
  using Versions = StreamRule::Versions;
  return stream_schedule(
      {.ranks = ranks, .versions = vertical_sync ? Versions::kInSync : Versions::kNewest},
      micro_batches);
}

PipelineSchedule double_buffered_schedule(int ranks, int micro_batches, int steps) {
  return stream_schedule(
      {.ranks = ranks, .micro_batches = micro_batches, .versions = StreamRule::Versions::kDelayed},
      steps);
}

}  // namespace gradwire
