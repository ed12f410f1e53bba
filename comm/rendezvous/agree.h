// What the ranks of a job find out by their store: settings that all must have alike, nodes, and
// what each says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/rendezvous.h"
#include "gradwire/status.h"

namespace gradwire::rendezvous {

// Collective, once a job and name. Where the values differ all ranks return the same kRankMismatch,
// which has rank 0's value and the first other; lest those that agree with rank 0 wait for the
// others. Errors of the store as they are.
Status agree(const Rendezvous& rendezvous, std::string_view name, std::string_view value);

// Collective, once a job and name. Whether `here` is true on every rank: one answer for all ranks.
// Errors of the store as they are.
Result<bool> everywhere(const Rendezvous& rendezvous, std::string_view name, bool here);

// Collective, once a job and key: what each rank says, of any bytes, by rank. Rank 0 reads it of
// all, the others read one table. kTimedOut names a rank that said nothing; kCorruptPayload where
// rank 0 handed on something else.
Result<std::vector<std::string>> gather(const Rendezvous& rendezvous, const std::string& key,
                                        std::string_view own);

// Collective, once a job. own: what this rank's node is called; ranks that say the same are on one.
// By rank: its node, numbered from 0 on in the order of first ranks, the same on all ranks. A hash
// travels, not the name. kTimedOut names a rank that said nothing; kCorruptPayload one that said
// something else than a hash.
Result<std::vector<int>> nodes_of_job(const Rendezvous& rendezvous, std::string_view own);

}  // namespace gradwire::rendezvous
