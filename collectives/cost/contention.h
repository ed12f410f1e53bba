// What an algorithm costs where ranks take turns: with fewer processors than ranks, or behind a
// switch that carries less than its ports. Then the messages that ranks send at the same time wait
// for each other, and the work of all ranks together counts, not the longest chain alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/exact_time.h"
#include "collectives/cost/model.h"

namespace gradwire {

// What all ranks together send, and add.
struct Traffic {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
  std::int64_t reduced = 0;  // bytes
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

// Counted in the schedules of all ranks.
Traffic traffic_of(const CostQuestion& question, std::string_view algorithm);

// time_of(cost.terms), the longest chain, or what all p ranks have to do together, if that is more:
// contention * alpha * M / p for the starts of M messages, since a round in which every rank sends
// and receives once takes contention * alpha, and contention_beta * beta * B / p for their B bytes;
// the larger of the two and half of the smaller. If bytes contend, it is for processors, and
// additions take theirs too. All this only where all ranks are apart or all share a node, and for
// at most kMostContenders of them.
inline constexpr int kMostContenders = 64;
ExactTime expected_time(const CostQuestion& question, const Cost& cost, std::string_view algorithm);

// Whether the ranks take turns at so many starts that their messages' bytes and additions take no
// more than twice as long: then each round in which ranks wait for each other costs them a turn.
bool mostly_turns(const CostQuestion& question, std::string_view algorithm);

}  // namespace gradwire
