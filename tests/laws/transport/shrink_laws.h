// Rank 0 of four is killed, and rank 2 ends while the others shrink: what is left of the job goes
// on.
#pragma once

#include <functional>
#include <memory>

#include "gradwire/communicator.h"
#include "tests/laws/transport/transport_laws.h"

namespace gradwire::laws {

// When the second one ends.
enum class Point {
  kFirstProposal,  // before it has said anything
  kReady,          // when it has seen that all propose the same, and before it says so
  kRebuilding,     // all have agreed with it
  kRebuilt,        // some may have gone on with it
};

using MakeWorld =
    std::function<Result<std::unique_ptr<Communicator>>(std::unique_ptr<Transport> transport)>;

// Ranks 1 and 3 must end up together, alone, with right sums.
void shrink_past(const TransportBackend& backend, Point point, Fate fate, const MakeWorld& make);

}  // namespace gradwire::laws
