// The machines that a model is placed on: devices in nodes, and what joins them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/profile/device_times.h"
#include "planner/profile/link_times.h"
#include "planner/profile/profile.h"

namespace gradwire {

struct DeviceType {
  std::string name;
  std::int64_t memory_bytes = 0;  // from 1
  double macs_per_second = 0;     // above 0: multiplications with their additions
  // Bytes a second that its memory is read and written at; 0 where nothing says so.
  double memory_bandwidth = 0;
  // Of a profile's file: what products were measured to take, by their size; macs_per_second is
  // then the greatest rate among them. Both empty: the rate is not measured.
  std::string profile = {};
  MeasuredTimes measured = {};
  ProfileConditions conditions = {};  // of that profile
  // What else was measured there; null where nothing was.
  std::shared_ptr<const DeviceTimes> times = nullptr;
};

// Source of the cost: Hockney, Parallel Computing 1994.
struct ClusterLink {
  std::string name;
  std::int64_t latency = 0;     // nanoseconds a message
  double bytes_per_second = 0;  // above 0; each way, but where it is a bus
  // Inside a node: true is a bus with one message at a time, false a port out and a port in for
  // each device. Between nodes: true is one port out and one in for the node, false for each
  // device.
  bool shared = false;
  // Of a device's processor for each byte that it sends and receives at the same time, where the
  // processor that computes sends, too. 0: others send.
  double processor_seconds_per_byte = 0;
  std::string profile = {};           // the file that it was measured in; empty: it is not measured
  ProfileConditions conditions = {};  // of that profile
  // What exchanges and messages were measured to take there besides; null where they were not.
  std::shared_ptr<const LinkTimes> times = nullptr;
};

struct ClusterNode {
  std::string name;
  int devices = 1;
  int type = 0;     // of all its devices: a number in Cluster::types
  int link = -1;    // between its devices: a number in Cluster::links; -1: it has one device
  int uplink = -1;  // to other nodes; -1: there is none
};

// How a message goes from one device to another.
struct ClusterPath {
  std::int64_t latency = 0;         // nanoseconds
  double bytes_per_second = 0;      // 0: it is the same device
  std::vector<int> resources = {};  // that it has while it is sent
  double processor_seconds_per_byte = 0;
  // ClusterLink::times, of uplinks the sender's where it has any; the cluster's.
  const LinkTimes* times = nullptr;
};

struct Cluster {
  std::string name;
  std::vector<DeviceType> types = {};
  std::vector<ClusterLink> links = {};
  std::vector<ClusterNode> nodes = {};

  // Devices are numbered through nodes in their order.
  int devices() const;
  int node_of(int device) const;
  const DeviceType& type_of(int device) const;
  // Two ends in two nodes: the greater latency and processor time, and the smaller bandwidth of
  // both uplinks.
  ClusterPath path(int from, int to) const;
  // Numbers of resources: devices themselves are 0 to devices() - 1, ports follow.
  int resources() const;
};

// kInvalidArgument names the type, the link or the node: none of them, a name that is missing or
// stands twice, sizes out of range (memory_bytes from 1; bandwidths and rates 1 to 1e18, that of
// memory 0, too;
// latencies 0 to 1e12; processor times 0 to 1e3; 1 to 65,536 devices), a number of what is not
// there, two devices without a link, two nodes without an uplink.
Status check_cluster(const Cluster& cluster);
// What of that is said of one node beside the others, but for its name. `node` is one of the
// cluster's.
Status check_node(const Cluster& cluster, const ClusterNode& node);

// Whole nanoseconds, rounded up: as measured (time_of()), or by the rate.
std::int64_t compute_ticks(const DeviceType& type, std::int64_t macs);
// Without the latency. 0 for the path of a device to itself.
std::int64_t send_ticks(const ClusterPath& path, std::int64_t bytes);

}  // namespace gradwire
