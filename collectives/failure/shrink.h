// Going on with the ranks that are left: they agree on who they are over the transport's notes, no
// store and no rank in particular is needed, and the transport is rebuilt for them.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/failure/flight_recorder.h"
#include "collectives/failure/survivor_vote.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/transport.h"

namespace gradwire {

struct ShrinkCall {
  std::vector<int> group;          // job ranks of the failed communicator, ascending
  std::vector<int> left_behind;    // those that it lost in earlier shrinks, ascending
  std::uint32_t communicator = 0;  // its id
  Status failure;                  // of this rank's engine
  Deadline deadline;
  // What the ranks have agreed on when they last tried to go on, whether it came about or not;
  // written before each try. A later one begins with it: its generation is another one, and the
  // transport, which was rebuilt for those that seemed to be left, names the lost of before no
  // more.
  Proposal& attempt;
  bool allow_lone_survivor;  // both as CommunicatorOptions has them
  const TakeToken& take_token;
};

struct Survivors {
  std::vector<int> ranks = {};  // ascending, this one among them
  std::vector<int> lost = {};   // the rest of the group, and whom it had lost before
  std::uint32_t generation = 0;
};

// Collective over the survivors; blocks. At the deadline, ranks that have not called count as lost,
// and as another side, since they may live and call later; within another second it ends in any
// case. Errors: kPeerLost when this rank is isolated: the others, who have the token, are more or
// have the lowest rank, go on without it, or it is alone and cannot know that they do not;
// kTimedOut; kUnsupported when the transport has no notes. After kTimedOut it may be called again.
Result<Survivors> agree_and_rebuild(Transport& transport, const ShrinkCall& call,
                                    const FlightRecorder& recorder);

}  // namespace gradwire
