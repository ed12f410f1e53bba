// Compression methods that keep a momentum by themselves (dgc), beside the optimizer's.
#pragma once

#include <string>

#include "apps/flags.h"
#include "apps/train/train_options.h"
#include "gradwire/status.h"

namespace gradwire {

// Where a rule of --compressor keeps a momentum itself: kInvalidArgument beside a momentum that was
// asked for; else options.momentum is 0 for this run, and options.momentum_of names the method.
Status settle_own_momentum(const Flags& flags, TrainOptions& options);

// ", momentum 0 (dgc keeps its own)" for a run's first line; empty where nothing was settled.
std::string own_momentum_text(const TrainOptions& options);

}  // namespace gradwire
