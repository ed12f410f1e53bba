// The numbers of a LinkModel, measured between the ranks of a communicator.
#pragma once

#include "gradwire/communicator.h"
#include "gradwire/link_model.h"
#include "gradwire/status.h"

namespace gradwire {

// Collective. Between two nodes, and between two ranks of one, as communicator.nodes() says (where
// that says nothing, all links are those between ranks 0 and 1): alpha is half the shortest of some
// round trips of 8 B, beta is what the second half of a message adds that takes four milliseconds
// or has 1 MiB. gamma from adding 1 MiB on rank 0. Where all ranks are apart, or all on one
// node, contention comes from all-reduces: of 8 B the middle one of many, of up to 1 MiB the
// shortest of several. What cannot be measured, for want of such ranks, stays as
// communicator.links() has it, as does the gap. All ranks get the same numbers. Takes 10 to 150 ms
// for each kind of link.
Result<LinkModel> measure_links(Communicator& communicator);

}  // namespace gradwire
