// Stages whose ranks are threads, over messages, each with a stream of its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "device/cuda/stream.h"
#include "tests/gpu/stage_training.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::gpu {

inline constexpr Device kStageDevice{MemorySpace::kCuda, 0};

// On the device, or on the host.
inline StageOutcome train_stages_on(Communicator& world, const StageJob& job, Device device) {
  StageOutcome outcome;
  const SmallProblem problem = small_problem(job.family);
  Status status;
  if (device.space == MemorySpace::kCuda) {
    auto stream = cuda::OwnedStream::create(device);
    status = stream.has_value()
                 ? train_stage_rank(world, problem, job, stream.value().stream(), outcome)
                 : stream.error();
  } else {
    status = train_stage_rank(world, problem, job, {}, outcome);
  }
  if (!status.ok()) outcome.fault = status.message();
  return outcome;
}

inline std::vector<StageOutcome> train_threads(const StageJob& job, Device device) {
  auto made = make_inproc_communicators(job.ranks(), {.deadline_seconds = 60});
  if (!made.has_value()) {
    StageOutcome none;
    none.fault = made.error().message();
    return {none};
  }
  return on_threads<StageOutcome>(job.ranks(), [&](int rank) {
    const auto world = std::move(made.value()[static_cast<std::size_t>(rank)]);
    StageOutcome outcome = train_stages_on(*world, job, device);
    if (!outcome.fault.empty()) world->abort("a rank failed");
    return outcome;
  });
}

// As many replicas of whole models, with the same micro-batches.
inline StageJob without_stages(StageJob job) {
  job.stages = 1;
  return job;
}

}  // namespace gradwire::gpu
