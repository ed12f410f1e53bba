// How generators add an operation to a rank's list.
#pragma once

#include "trainer/pipeline/schedule.h"

namespace gradwire {

inline void emit(PipelineSchedule& schedule, int rank, PipelineOpKind kind, int stage, int micro) {
  schedule.ranks[static_cast<std::size_t>(rank)].push_back(
      {.kind = kind,
       .stage = static_cast<std::uint16_t>(stage),
       .micro = static_cast<std::uint16_t>(micro)});
}

}  // namespace gradwire
