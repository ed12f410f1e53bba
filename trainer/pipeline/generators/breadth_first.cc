#include "trainer/pipeline/generators/emit.h"
#include "trainer/pipeline/generators/generators.h"

namespace gradwire {

PipelineSchedule breadth_first_schedule(int ranks, int micro_batches, int chunks) {
  PipelineSchedule schedule = looped_placement(ranks, chunks, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int micro = 0; micro < micro_batches; ++micro) {
        emit(schedule, rank, PipelineOpKind::kForward, chunk * ranks + rank, micro);
      }
    }
    for (int chunk = chunks - 1; chunk >= 0; --chunk) {
      for (int micro = 0; micro < micro_batches; ++micro) {
        emit(schedule, rank, PipelineOpKind::kBackward, chunk * ranks + rank, micro);
      }
    }
  }
  return schedule;
}

}  // namespace gradwire
