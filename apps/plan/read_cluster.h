// Clusters of files, with the profiles that they name.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/cluster/cluster.h"

namespace gradwire {

// A profile's path is read from the cluster's folder on. Errors as read_whole_file(),
// parse_cluster() and read_profile().
Result<Cluster> read_cluster(const std::string& path);

// Which rates are not measured: "rates of gpu and network are given, not measured", or "rates are
// measured". Of what the nodes use.
std::string rates_text(const Cluster& cluster);

// A profile whose rates stand for a cluster.
struct UsedProfile {
  std::string file;  // as the cluster names it
  ProfileConditions conditions = {};
};
// Those of the devices and links that the nodes use, each once, devices' first.
std::vector<UsedProfile> used_profiles(const Cluster& cluster);

}  // namespace gradwire
