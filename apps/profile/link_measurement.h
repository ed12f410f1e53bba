// What messages between two ranks of this machine take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/profile/profile.h"

namespace gradwire {

// Two processes, started with this program, that send to each other at the same time over
// "shm", "tcp" or "ucx": `gradwire bench send_recv`, about `seconds` for each of two sizes. The
// latency is that of 1 KiB, the bandwidth what 4 MiB take beyond it. kInternal with what the ranks
// printed where they fail; kTimedOut where they have not ended after a minute and ten times as long
// as was asked for.
Result<ProfiledLink> measure_link(const std::string& transport, double seconds);

// Likewise what steps of an aggregator and messages cost besides: `gradwire bench exchange`, of
// tensors of each of `elements`, and of a few, under each of `compressors`; medians of `rounds`.
// Added to the profile. Errors as measure_link().
Status measure_exchanges(const std::string& transport, const std::vector<std::string>& compressors,
                         const std::vector<std::int64_t>& elements, int rounds, Profile& profile);
// From its rows; other lines are left out. kInternal where there are no exchanges, or no message.
Status exchanges_of_rows(const std::string& transport, const std::string& lines, Profile& profile);

// From the rows of `gradwire bench send_recv --json -`, of which there are two; other lines are
// left out. kInternal where there are not.
Result<ProfiledLink> link_of_rows(const std::string& transport, const std::string& lines);

}  // namespace gradwire
