// What --traffic says of what a run sends, and the flags that are short for parts of it.
#pragma once

#include "apps/flags.h"
#include "apps/train/train_options.h"
#include "gradwire/status.h"

namespace gradwire {

// Puts what --traffic says where --compressor, --parameter-compressor, --optimizer-compressor and
// --algorithm have it. After the parallel flags are settled. kInvalidArgument where one of these
// is given too, and where the run has no traffic of a class that is compressed.
Status settle_traffic(const Flags& flags, TrainOptions& options);

}  // namespace gradwire
