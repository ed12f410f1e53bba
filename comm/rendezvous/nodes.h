// Which ranks of a job are on one node.
#pragma once

#include <string_view>
#include <vector>

#include "gradwire/rendezvous.h"
#include "gradwire/status.h"

namespace gradwire::rendezvous {

// Collective, once a job. own: what this rank's node is called; ranks that say the same are on one.
// By rank: its node, numbered from 0 on in the order of first ranks, the same on all ranks. A hash
// travels, not the name. kTimedOut names a rank that said nothing; kCorruptPayload one that said
// something else than a hash.
Result<std::vector<int>> nodes_of_job(const Rendezvous& rendezvous, std::string_view own);

}  // namespace gradwire::rendezvous
