// Training of ranks that are threads over the library that plays NCCL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/nccl/nccl_threads.h"
#include "tests/gpu/stage_training.h"

namespace gradwire::gpu {

// By rank.
inline std::vector<StageOutcome> train_over_nccl(const StageJob& job) {
  std::vector<StageOutcome> outcomes(static_cast<std::size_t>(job.ranks()));
  const auto faults =
      on_nccl_threads(job.ranks(), {.deadline_seconds = 60}, {GW_FAKE_NCCL},
                      [&](std::unique_ptr<Communicator> world) -> std::string {
                        StageOutcome& outcome = outcomes[static_cast<std::size_t>(world->rank())];
                        const OwnStream own;
                        const Status status = train_stage_rank(*world, small_problem(job.family),
                                                               job, own.stream(), outcome);
                        if (status.ok()) return "";
                        world->abort("a rank failed");
                        return std::string(status.message());
                      });
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) outcomes[rank].fault = faults[rank];
  return outcomes;
}

}  // namespace gradwire::gpu
