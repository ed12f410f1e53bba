// Clusters of files, with the profiles that they name.
#pragma once

#include <string>

#include "gradwire/status.h"
#include "planner/cluster/cluster.h"

namespace gradwire {

// A profile's path is read from the cluster's folder on. Errors as read_whole_file(),
// parse_cluster() and read_profile().
Result<Cluster> read_cluster(const std::string& path);

// Which rates are not measured: "rates of gpu and network are given, not measured", or "rates are
// measured". Of what the nodes use.
std::string rates_text(const Cluster& cluster);

}  // namespace gradwire
