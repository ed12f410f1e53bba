// What --parallel says of a run's ranks, and what other flags say of the same.
#pragma once

#include "apps/flags.h"
#include "apps/train/train_options.h"
#include "gradwire/status.h"

namespace gradwire {

// Puts what --parallel says where the older flags have it: the ranks that are threads, the ZeRO
// stage. launched: the ranks that a launcher started; 0: there is none. kInvalidArgument where two
// flags say one thing, and where the mesh does not fit the job.
Status settle_parallel(const Flags& flags, TrainOptions& options, int launched);

}  // namespace gradwire
