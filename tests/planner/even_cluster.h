// Clusters in which a product and a byte take whole nanoseconds.
#pragma once

#include "planner/cluster/cluster.h"

namespace gradwire {

// One node; a device does a product a nanosecond, a link sends 1 / `byte_ticks` bytes a nanosecond.
inline Cluster even_cluster(int devices, double byte_ticks, std::int64_t latency = 0,
                            bool shared = false) {
  Cluster cluster;
  cluster.types = {{.name = "gpu", .memory_bytes = std::int64_t{1} << 50, .macs_per_second = 1e9}};
  cluster.links = {
      {.name = "link", .latency = latency, .bytes_per_second = 1e9 / byte_ticks, .shared = shared}};
  cluster.nodes = {{.name = "node", .devices = devices, .type = 0, .link = 0, .uplink = -1}};
  return cluster;
}

// Two nodes; devices of the second are half as fast, the network is ten times as slow as the links.
inline Cluster uneven_cluster(int devices_a_node, double byte_ticks) {
  Cluster cluster = even_cluster(devices_a_node, byte_ticks, 3);
  cluster.types.push_back({.name = "old", .memory_bytes = 1 << 30, .macs_per_second = 5e8});
  cluster.links.push_back(
      {.name = "network", .latency = 50, .bytes_per_second = 1e8 / byte_ticks, .shared = true});
  cluster.nodes[0].uplink = 1;
  cluster.nodes.push_back(
      {.name = "second", .devices = devices_a_node, .type = 1, .link = 0, .uplink = 1});
  return cluster;
}

}  // namespace gradwire
