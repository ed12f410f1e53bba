#include "planner/cluster/cluster.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr double kNanoseconds = 1e9;
constexpr double kLeastRate = 1;
constexpr double kMostRate = 1e18;
constexpr double kMostProcessorTime = 1e3;
constexpr double kMostTicks = 0x1p60;
constexpr std::int64_t kMostLatency = 1'000'000'000'000;
constexpr int kMostDevices = 1 << 16;

// In: 0 and 1 the ports of a device in its node, 2 and 3 those to other nodes.
constexpr int kPortsOfDevice = 4;
// A node's bus, its port out, its port in.
constexpr int kPortsOfNode = 3;

Status bad(const char* what, const std::string& name, const std::string& wrong) {
  return {Code::kInvalidArgument, format("%s '%s': %s", what, name.c_str(), wrong.c_str())};
}

template <typename Named>
Status check_names(const char* what, const std::vector<Named>& all) {
  std::set<std::string> names;
  for (const Named& one : all) {
    if (one.name.empty()) return bad(what, one.name, "it has no name (expected one)");
    if (!names.insert(one.name).second) {
      return bad(what, one.name, "the name stands twice (expected once)");
    }
  }
  return {};
}

Status check_rate(const char* what, const std::string& name, const char* key, double rate) {
  if (rate >= kLeastRate && rate <= kMostRate) return {};
  return bad(what, name, format("%s=%s (expected 1 to 1e18)", key, shortest(rate).c_str()));
}

std::int64_t up(double ticks) {
  return static_cast<std::int64_t>(std::ceil(std::min(ticks, kMostTicks)));
}

}  // namespace

int Cluster::devices() const {
  int count = 0;
  for (const ClusterNode& node : nodes) count += node.devices;
  return count;
}

int Cluster::node_of(int device) const {
  int node = 0;
  for (int left = device; left >= nodes[static_cast<std::size_t>(node)].devices; ++node) {
    left -= nodes[static_cast<std::size_t>(node)].devices;
  }
  return node;
}

const DeviceType& Cluster::type_of(int device) const {
  const ClusterNode& node = nodes[static_cast<std::size_t>(node_of(device))];
  return types[static_cast<std::size_t>(node.type)];
}

ClusterPath Cluster::path(int from, int to) const {
  if (from == to) return {};
  const int first_node_port = devices() * (1 + kPortsOfDevice);
  const auto port = [this](int device, int number) {
    return devices() + device * kPortsOfDevice + number;
  };
  const int a = node_of(from);
  const int b = node_of(to);
  const ClusterNode& here = nodes[static_cast<std::size_t>(a)];
  const ClusterNode& there = nodes[static_cast<std::size_t>(b)];
  if (a == b) {
    const ClusterLink& link = links[static_cast<std::size_t>(here.link)];
    ClusterPath path{
        link.latency, link.bytes_per_second, {}, link.processor_seconds_per_byte, link.times.get()};
    if (link.shared) {
      path.resources = {first_node_port + a * kPortsOfNode};
    } else {
      path.resources = {port(from, 0), port(to, 1)};
    }
    return path;
  }
  const ClusterLink& out = links[static_cast<std::size_t>(here.uplink)];
  const ClusterLink& in = links[static_cast<std::size_t>(there.uplink)];
  return {std::max(out.latency, in.latency),
          std::min(out.bytes_per_second, in.bytes_per_second),
          {out.shared ? first_node_port + a * kPortsOfNode + 1 : port(from, 2),
           in.shared ? first_node_port + b * kPortsOfNode + 2 : port(to, 3)},
          std::max(out.processor_seconds_per_byte, in.processor_seconds_per_byte),
          (out.times != nullptr ? out.times : in.times).get()};
}

int Cluster::resources() const {
  return devices() * (1 + kPortsOfDevice) + static_cast<int>(nodes.size()) * kPortsOfNode;
}

Status check_node(const Cluster& cluster, const ClusterNode& node) {
  const auto is_there = [](int number, std::size_t count) {
    return number >= 0 && static_cast<std::size_t>(number) < count;
  };
  if (node.devices < 1 || node.devices > kMostDevices) {
    return bad("node", node.name,
               format("devices=%d (expected 1 to %d)", node.devices, kMostDevices));
  }
  if (!is_there(node.type, cluster.types.size())) {
    return bad("node", node.name, format("device type %d is not there", node.type));
  }
  if (!is_there(node.link, cluster.links.size()) && (node.devices > 1 || node.link != -1)) {
    return bad("node", node.name,
               format("%d devices without a link between them (expected one)", node.devices));
  }
  if (!is_there(node.uplink, cluster.links.size()) &&
      (cluster.nodes.size() > 1 || node.uplink != -1)) {
    return bad("node", node.name,
               format("no uplink among %zu nodes (expected one)", cluster.nodes.size()));
  }
  return {};
}

Status check_cluster(const Cluster& cluster) {
  if (cluster.nodes.empty()) {
    return {Code::kInvalidArgument, "cluster without nodes (expected at least one)"};
  }
  GW_TRY(check_names("device", cluster.types));
  GW_TRY(check_names("link", cluster.links));
  GW_TRY(check_names("node", cluster.nodes));
  for (const DeviceType& type : cluster.types) {
    if (type.memory_bytes < 1) {
      return bad("device", type.name,
                 format("memory=%lld (expected 1 byte or more)",
                        static_cast<long long>(type.memory_bytes)));
    }
    GW_TRY(check_rate("device", type.name, "macs_per_second", type.macs_per_second));
    if (type.memory_bandwidth != 0) {
      GW_TRY(check_rate("device", type.name, "memory_bandwidth", type.memory_bandwidth));
    }
  }
  for (const ClusterLink& link : cluster.links) {
    if (link.latency < 0 || link.latency > kMostLatency) {
      return bad("link", link.name,
                 format("a latency of %lld ns (expected 0 to 1e12)",
                        static_cast<long long>(link.latency)));
    }
    GW_TRY(check_rate("link", link.name, "bandwidth", link.bytes_per_second));
    const double taken = link.processor_seconds_per_byte;
    if (!(taken >= 0 && taken <= kMostProcessorTime)) {
      return bad("link", link.name,
                 format("processor=%s (expected 0 to 1e3)", shortest(taken).c_str()));
    }
  }
  std::int64_t devices = 0;
  for (const ClusterNode& node : cluster.nodes) {
    GW_TRY(check_node(cluster, node));
    devices += node.devices;
  }
  if (devices <= kMostDevices) return {};
  return {Code::kInvalidArgument, format("cluster of %lld devices (expected at most %d)",
                                         static_cast<long long>(devices), kMostDevices)};
}

std::int64_t compute_ticks(const DeviceType& type, std::int64_t macs) {
  if (macs == 0) return 0;
  if (const auto seconds = time_of(type.measured, macs)) return up(*seconds * kNanoseconds);
  return up(static_cast<double>(macs) * kNanoseconds / type.macs_per_second);
}

std::int64_t send_ticks(const ClusterPath& path, std::int64_t bytes) {
  if (path.bytes_per_second == 0) return 0;
  return up(static_cast<double>(bytes) * kNanoseconds / path.bytes_per_second);
}

}  // namespace gradwire
