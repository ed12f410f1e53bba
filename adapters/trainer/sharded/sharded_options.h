// How a sharded training is made.
#pragma once

#include <cstdint>
#include <string>

#include "adapters/trainer/data_parallel.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"
#include "trainer/memory/trainer_memory.h"
#include "trainer/optimizers/optimizer.h"
#include "trainer/step/compute_parameters.h"

namespace gradwire {

struct ShardedOptions {
  int stage = 1;                 // 1 to 3
  DataParallelOptions parallel;  // aggregator.compressor: of the gradients, "none" or elementwise
  // What updated parameters travel as: the same kinds; at stage 3 none or cast.
  std::string parameters = "none";
  OptimizerOptions optimizer;
  Offload offload = Offload::kNone;  // kParameters at stage 3 alone, where both mean that
  // Elements that are copied, or widened, and stepped together.
  std::int64_t offload_chunk = 1 << 18;
};

// kInvalidArgument names the option, the value seen and the value wanted.
Status check_sharded_options(const ShardedOptions& options, const TrainerMemory& memory);

// Whether the gradients' compressor serves shards, before anything is made. Errors as those of
// ReducedGradients::create() about it.
Status check_sharded_compressor(const Registry& registry, const DataParallelOptions& options);

}  // namespace gradwire
