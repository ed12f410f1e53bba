// Going on with the ranks that are left: they agree on who they are over the transport's notes, no
// store and no rank in particular is needed, and the transport is rebuilt for them.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/flight_recorder.h"
#include "gradwire/status.h"
#include "gradwire/transport.h"

namespace gradwire {

struct ShrinkCall {
  std::vector<int> group;          // job ranks of the failed communicator, ascending
  std::vector<int> left_behind;    // those that it lost in earlier shrinks, ascending
  std::uint32_t communicator = 0;  // its id
  std::uint32_t generation = 0;    // of this rank's engine
  Status failure;                  // of this rank's engine
  Deadline deadline;
};

struct Survivors {
  std::vector<int> ranks = {};  // ascending, this one among them
  std::vector<int> lost = {};   // the rest of the group, and whom it had lost before
  std::uint32_t generation = 0;
};

// Collective over the survivors; blocks. At the deadline, ranks that live but have not called count
// as lost, and within another second it ends in any case. Errors: kPeerLost when this rank is
// isolated: the others, who are more or have the lowest rank, go on without it; kTimedOut;
// kUnsupported when the transport has no notes. After kTimedOut it may be called again.
Result<Survivors> agree_and_rebuild(Transport& transport, const ShrinkCall& call,
                                    const FlightRecorder& recorder);

}  // namespace gradwire
