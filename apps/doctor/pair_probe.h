// Two processes of this host, connected as two ranks would be.
#pragma once

#include <string>

#include "gradwire/status.h"

namespace gradwire {

// Forks two ranks, which meet through files and connect over `transport` ("ucx" or "tcp"); what
// rank 0's transport says of itself ("ucx 1.13.1: rank 0 of 2; sysv to rank 1; ..."). Takes 20 s at
// most. To be called while this process has one thread and before it uses UCX.
Result<std::string> probe_pair(const std::string& transport, const std::string& interfaces);

}  // namespace gradwire
