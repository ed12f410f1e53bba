#include "trainer/pipeline/generators/v_run.h"

#include "base/check.h"
#include "trainer/pipeline/generators/emit.h"

namespace gradwire {

VPipelineRun::VPipelineRun(int ranks, int micro_batches)
    : schedule_(v_placement(ranks, micro_batches)),
      stages_(static_cast<std::size_t>(schedule_.stages())),
      ranks_(static_cast<std::size_t>(ranks)),
      total_(std::int64_t{3} * schedule_.stages() * micro_batches) {}

bool VPipelineRun::start_forward(int rank, int stage) {
  StageDone& here = done_at(stage);
  const int micro = here.forwards;
  if (micro == micro_batches()) return false;
  if (stage > 0 && !has_ended(done_at(stage - 1).forward_end, micro)) return false;
  emit(schedule_, rank, PipelineOpKind::kForward, stage, micro);
  ++here.forwards;
  here.forward_end.push_back(now_ + 1);
  ++ranks_[static_cast<std::size_t>(rank)].open;
  ++started_;
  last_start_ = now_;
  return true;
}

bool VPipelineRun::start_input(int rank, int stage) {
  StageDone& here = done_at(stage);
  const int micro = here.inputs;
  if (micro == here.forwards || !has_ended(here.forward_end, micro)) return false;
  const bool is_last = stage + 1 == schedule_.stages();
  if (!is_last && !has_ended(done_at(stage + 1).input_end, micro)) return false;
  emit(schedule_, rank, PipelineOpKind::kBackwardInput, stage, micro);
  ++here.inputs;
  here.input_end.push_back(now_ + 1);
  ranks_[static_cast<std::size_t>(rank)].weights.push_back({stage, micro, now_ + 1});
  ++started_;
  last_start_ = now_;
  return true;
}

bool VPipelineRun::start_weight(int rank) {
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  if (state.weights.empty() || state.weights.front().since > now_) return false;
  const Waiting oldest = state.weights.front();
  state.weights.pop_front();
  emit(schedule_, rank, PipelineOpKind::kBackwardWeight, oldest.stage, oldest.micro);
  --state.open;
  ++started_;
  last_start_ = now_;
  return true;
}

void VPipelineRun::tick() {
  // What started a tick ago has ended: a tick without a start would have none behind it either.
  GW_CHECK(last_start_ == now_);
  ++now_;
}

}  // namespace gradwire
