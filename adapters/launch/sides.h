// What decides which ranks go on when some are out of reach (docs/failure.md), as a job's variables
// say.
#pragma once

#include "gradwire/communicator.h"
#include "gradwire/config.h"
#include "gradwire/rendezvous.h"

namespace gradwire::launch {

// Fills in `options.take_token`, where it is empty and the launcher holds a store
// (GRADWIRE_LAUNCHER_STORE=file://DIR, which `gradwire run` sets; the store of torchrun's agent),
// and `options.allow_lone_survivor` (GRADWIRE_ALLOW_LONE_SURVIVOR=0 or 1). Where there is such a
// store, collective over the ranks of `rendezvous`, once for each, within its time limit: the names
// of tokens have a word that rank 0 draws. Errors: kInvalidArgument for other values; of the
// stores.
Status choose_side_rule(CommunicatorOptions& options, const Rendezvous& rendezvous,
                        const EnvLookup& env);

}  // namespace gradwire::launch
