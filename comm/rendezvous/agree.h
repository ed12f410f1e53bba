// Settings that all ranks of a job must have alike.
#pragma once

#include <string_view>

#include "gradwire/rendezvous.h"
#include "gradwire/status.h"

namespace gradwire::rendezvous {

// Collective, once a job and name. kRankMismatch, with both values, where this rank's differs from
// rank 0's; the ranks that agree with it hear nothing of that. Errors of the store as they are.
Status agree(const Rendezvous& rendezvous, std::string_view name, std::string_view value);

// The same where the ranks that agree with rank 0 have to hear it too, lest they wait for the
// others: all ranks return the same kRankMismatch, which has rank 0's value and the first other.
Status agree_together(const Rendezvous& rendezvous, std::string_view name, std::string_view value);

// Collective, once a job and name. Whether `here` is true on every rank: one answer for all ranks.
// Errors of the store as they are.
Result<bool> everywhere(const Rendezvous& rendezvous, std::string_view name, bool here);

}  // namespace gradwire::rendezvous
