// Clusters as TOML:
//
//   name = "two nodes of four"
//   [device.gpu]              # a type of devices
//   memory = "16G"          # K, M or G, or bytes
//   macs_per_second = 4.0e13   # or profile = "FILE": as measured there
//   memory_bandwidth = 2e12    # bytes a second, beside a rate; without it optimizers take no time
//   [link.bridge]
//   latency = 2e-6            # seconds a message
//   bandwidth = 1e11          # bytes a second
//   processor = 0             # seconds of a device's processor for a byte sent and one received,
//                             # where the one that computes sends, too; 0 by default
//                             # or profile = "FILE" and transport = "tcp" for these three: those
//                             # that stand beside them are in place of what was measured
//   shared = false            # as ClusterLink::shared; false by default
//   [[node]]
//   name = "node"             # "node0", "node1" where count is above 1
//   count = 2                 # nodes alike; 1 by default
//   devices = 4               # 1 by default
//   device = "gpu"
//   link = "bridge"           # between its devices
//   uplink = "network"        # to other nodes
#pragma once

#include <functional>
#include <string>

#include "gradwire/status.h"
#include "planner/cluster/cluster.h"

namespace gradwire {

// The profile of a file that a cluster names.
using ReadProfile = std::function<Result<Profile>(const std::string& path)>;

// The cluster of a text; `name` is the file's, for errors. Without `read` profiles are refused.
// kInvalidArgument with "NAME:LINE: " in front: what is not TOML, unknown keys, values of another
// kind or out of range, names of devices and links that are not there, what check_cluster()
// refuses; a device's rate beside a profile, a profile that cannot be read, that has no products,
// or no link of that transport.
Result<Cluster> parse_cluster(const std::string& text, const std::string& name,
                              const ReadProfile& read = {});

}  // namespace gradwire
