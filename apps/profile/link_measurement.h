// What messages between two ranks of this machine take.
#pragma once

#include <string>

#include "gradwire/status.h"
#include "planner/profile/profile.h"

namespace gradwire {

// Two processes, started with this program, that send to each other at the same time over
// "shm", "tcp" or "ucx": `gradwire bench send_recv`, about `seconds` for each of two sizes. The
// latency is that of 1 KiB, the bandwidth what 4 MiB take beyond it. kInternal with what the ranks
// printed where they fail; kTimedOut where they have not ended after a minute and ten times as long
// as was asked for.
Result<ProfiledLink> measure_link(const std::string& transport, double seconds);

// From the rows of `gradwire bench send_recv --json -`, of which there are two; other lines are
// left out. kInternal where there are not.
Result<ProfiledLink> link_of_rows(const std::string& transport, const std::string& lines);

}  // namespace gradwire
