// Schedules with one stage a rank.
#include <algorithm>

#include "trainer/pipeline/generators/emit.h"
#include "trainer/pipeline/generators/generators.h"

namespace gradwire {

PipelineSchedule gpipe_schedule(int ranks, int micro_batches) {
  return breadth_first_schedule(ranks, micro_batches, 1);
}

PipelineSchedule one_f_one_b_schedule(int ranks, int micro_batches) {
  PipelineSchedule schedule = looped_placement(ranks, 1, micro_batches);
  for (int stage = 0; stage < ranks; ++stage) {
    const int warm_up = std::min(ranks - stage - 1, micro_batches);
    for (int i = 0; i < warm_up; ++i) emit(schedule, stage, PipelineOpKind::kForward, stage, i);
    for (int i = 0; i < micro_batches; ++i) {
      if (warm_up + i < micro_batches) {
        emit(schedule, stage, PipelineOpKind::kForward, stage, warm_up + i);
      }
      emit(schedule, stage, PipelineOpKind::kBackward, stage, i);
    }
  }
  return schedule;
}

PipelineSchedule zero_bubble_h1_schedule(int ranks, int micro_batches) {
  PipelineSchedule schedule = looped_placement(ranks, 1, micro_batches);
  for (int stage = 0; stage < ranks; ++stage) {
    const int warm_up = std::min(ranks - stage - 1, micro_batches);
    for (int i = 0; i < warm_up; ++i) emit(schedule, stage, PipelineOpKind::kForward, stage, i);
    int weights = 0;  // micro-batches whose weight gradient is under way or done
    for (int i = 0; i < micro_batches; ++i) {
      if (warm_up + i < micro_batches) {
        emit(schedule, stage, PipelineOpKind::kForward, stage, warm_up + i);
      }
      emit(schedule, stage, PipelineOpKind::kBackwardInput, stage, i);
      if (i >= stage) emit(schedule, stage, PipelineOpKind::kBackwardWeight, stage, weights++);
    }
    while (weights < micro_batches) {
      emit(schedule, stage, PipelineOpKind::kBackwardWeight, stage, weights++);
    }
  }
  return schedule;
}

}  // namespace gradwire
