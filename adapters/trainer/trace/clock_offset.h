// Clocks of several hosts, brought together for one picture.
#pragma once

#include <cstdint>

#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// Collective: what this rank's steady clock is to be moved by so that it reads as rank 0's, in
// nanoseconds, from the fastest of some round trips: right to half of that one. Where the round
// trip alone explains what is measured, the clocks are one, and it is 0.
//
//   rank r: t0, asks;  rank 0: T, answers;  rank r: t1        T - (t0 + t1) / 2
//
// Source: Mills, "Internet time synchronization: the network time protocol", IEEE Trans.
// Communications 39(10), 1991, section 4.
Result<std::int64_t> offset_to_rank_0(Communicator& communicator);

}  // namespace gradwire
