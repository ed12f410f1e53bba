// The numbers of a LinkModel, measured between the ranks of a communicator.
#pragma once

#include <span>

#include "gradwire/communicator.h"
#include "gradwire/link_model.h"
#include "gradwire/status.h"

namespace gradwire {

// Collective; takes some tens of milliseconds. node_of: one of each rank, equal for ranks of one
// node; none: the numbers inside a node are those between nodes. alpha and beta come from round
// trips of 8 B and of 1 MiB between two ranks, half the shortest of several; gamma from adding 1
// MiB on rank 0. What cannot be measured, for want of such ranks, stays as communicator.links() has
// it, as does the gap. All ranks get rank 0's numbers.
Result<LinkModel> measure_links(Communicator& communicator, std::span<const int> node_of = {});

}  // namespace gradwire
