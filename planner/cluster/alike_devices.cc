#include "planner/cluster/alike_devices.h"

namespace gradwire {
namespace {

std::size_t at(int number) { return static_cast<std::size_t>(number); }

bool are_alike(const ClusterNode& a, const ClusterNode& b) {
  return a.devices == b.devices && a.type == b.type && a.link == b.link && a.uplink == b.uplink;
}

}  // namespace

std::vector<int> alike_nodes(const Cluster& cluster) {
  std::vector<int> alike;
  std::vector<int> kinds;  // the first node of each
  for (std::size_t node = 0; node < cluster.nodes.size(); ++node) {
    int found = static_cast<int>(node);
    for (const int kind : kinds) {
      if (are_alike(cluster.nodes[at(kind)], cluster.nodes[node])) found = kind;
    }
    if (found == static_cast<int>(node)) kinds.push_back(found);
    alike.push_back(found);
  }
  return alike;
}

std::vector<int> renamed_alike(const Cluster& cluster, const std::vector<int>& order) {
  const std::vector<int> alike = alike_nodes(cluster);
  std::vector<int> first;  // device, by node
  int devices = 0;
  for (const ClusterNode& node : cluster.nodes) {
    first.push_back(devices);
    devices += node.devices;
  }
  std::vector<int> names(at(devices), -1);
  std::vector<int> node_names(alike.size(), -1);
  std::vector<char> taken(alike.size());
  std::vector<int> used(alike.size());  // devices of a node that have names
  for (const int device : order) {
    if (names[at(device)] >= 0) continue;
    const int node = cluster.node_of(device);
    int& name = node_names[at(node)];
    for (std::size_t other = 0; name < 0; ++other) {
      if (alike[other] != alike[at(node)] || taken[other] != 0) continue;
      name = static_cast<int>(other);
      taken[other] = 1;
    }
    names[at(device)] = first[at(name)] + used[at(node)]++;
  }
  return names;
}

AlikeDevices::AlikeDevices(const Cluster& cluster)
    : alike_(alike_nodes(cluster)), node_uses_(cluster.nodes.size()) {
  for (std::size_t node = 0; node < cluster.nodes.size(); ++node) {
    first_.push_back(static_cast<int>(node_of_.size()));
    node_of_.insert(node_of_.end(), at(cluster.nodes[node].devices), static_cast<int>(node));
  }
  uses_.resize(node_of_.size());
}

bool AlikeDevices::stands_for_others(int device) const {
  if (uses_[at(device)] > 0) return true;
  const int node = node_of_[at(device)];
  if (device > first_[at(node)] && uses_[at(device - 1)] == 0) return false;
  if (node_uses_[at(node)] > 0) return true;
  for (int other = 0; other < node; ++other) {
    if (alike_[at(other)] == alike_[at(node)] && node_uses_[at(other)] == 0) return false;
  }
  return true;
}

void AlikeDevices::use(int device) {
  ++uses_[at(device)];
  ++node_uses_[at(node_of_[at(device)])];
}

void AlikeDevices::stop_using(int device) {
  --uses_[at(device)];
  --node_uses_[at(node_of_[at(device)])];
}

}  // namespace gradwire
