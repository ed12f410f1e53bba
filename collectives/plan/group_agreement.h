// How some ranks of a group agree on a group of their own, without the others.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/plan/group.h"
#include "gradwire/status.h"

namespace gradwire {

// All members' `own`, one after another in the order of `members`: ranks of the group, this one
// among them. Collective over those alone, and blocks. `what` is the method that asks. Errors:
// those of every operation; kRankMismatch if members have different lists.
Result<std::vector<std::int64_t>> gather_among(Group& group, const std::vector<int>& members,
                                               std::span<const std::int64_t> own,
                                               std::string_view what);

// A communicator id that is free on all members, claimed on this rank's engine. As gather_among();
// kInternal if there is none.
Result<int> claim_common_id(Group& group, const std::vector<int>& members, std::string_view what);

}  // namespace gradwire
