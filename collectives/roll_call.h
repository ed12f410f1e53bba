// When an operation's deadline passes: who is missing? Every rank that has given up on the
// operation says so to all others and listens for a moment. A rank that only waits for a missing
// one answers, the missing one does not; so all name the same culprit, not their neighbour.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/executor.h"
#include "gradwire/transport.h"

namespace gradwire {

struct RollCall {
  std::vector<int> missing;  // job ranks that did not answer, ascending
  std::string disagreement;  // "rank 2 runs barrier", if one answered with another description
  bool settled = true;       // false: the transport still holds memory of the call
};

// Blocks for at most `seconds`, less when all have answered or the transport finds a rank lost.
// `description` is what the ranks must agree on. Uses the operation's tag on kRollCallChannel.
RollCall take_roll_call(Transport& transport, const Route& route, std::string_view description,
                        double seconds);

inline constexpr std::uint32_t kRollCallChannel = 255;

}  // namespace gradwire
