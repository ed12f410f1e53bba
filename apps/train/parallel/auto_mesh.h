// `gradwire train --parallel auto`: the mesh of this machine's ranks on which a step is expected to
// take least, by its own profile.
#pragma once

#include <string>

#include "apps/flags.h"
#include "apps/train/train_options.h"
#include "gradwire/config.h"
#include "gradwire/status.h"

namespace gradwire {

// Among the meshes of `ranks` that training serves with the other flags, schedules with a flush
// alone: sets --parallel, and --accumulate, --recompute and --zero where they were not given, as if
// they stood on the command line. Every rank chooses alike. Does nothing without --parallel auto.
// The text says what was chosen and why; empty without it.
// kInvalidArgument: no profile of this machine in --profile (the command that makes one is named),
// or without the links of the ranks; ranks of several machines, or none to divide; --device cuda;
// an optimizer with exchanges of its own; --profile alone; no mesh that fits. kUnsupported as
// check_division_served().
Result<std::string> settle_auto(Flags& flags, TrainOptions& options, const LaunchInfo& launch,
                                int ranks_here);

}  // namespace gradwire
