// Devices that a placement may exchange without a difference: those of a node, and alike nodes.
#pragma once

#include <vector>

#include "planner/cluster/cluster.h"

namespace gradwire {

// By node: the first one that has as many devices of the same type behind the same links.
std::vector<int> alike_nodes(const Cluster& cluster);

// By device: another number for it, by exchanging alike devices, such that those that stand first
// in `order` have the lowest numbers that they can have; -1 for those that it does not name.
std::vector<int> renamed_alike(const Cluster& cluster, const std::vector<int>& order);

// Counts what a placement uses, device by device.
class AlikeDevices {
 public:
  explicit AlikeDevices(const Cluster& cluster);

  // Whether a placement that goes on with this device has to be tried. It has if the device is in
  // use, or is the first unused one of a node which is in use, or is the first unused node among
  // those alike. With any other device it differs from one of these by a renaming.
  bool stands_for_others(int device) const;
  void use(int device);
  void stop_using(int device);  // once, of use()

 private:
  std::vector<int> alike_;      // by node
  std::vector<int> first_;      // by node: its first device
  std::vector<int> node_of_;    // by device
  std::vector<int> uses_;       // by device
  std::vector<int> node_uses_;  // by node
};

}  // namespace gradwire
