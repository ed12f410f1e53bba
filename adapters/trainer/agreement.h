// Outcomes that all ranks share: what one rank could not do, none goes on from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// Collective. Every rank says how its part went, and gives a text. Where all are ok: every rank's
// text, by rank. Else on all ranks alike the status of the lowest rank that failed, with "rank R: "
// before its message. Waits `seconds` for the slowest rank.
Result<std::vector<std::string>> share_outcome(Communicator& communicator, const Status& mine,
                                               std::string_view text, double seconds);

}  // namespace gradwire
