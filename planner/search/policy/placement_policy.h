// What REINFORCE trains: probabilities of placements of groups.
#pragma once

#include <vector>

#include "planner/search/draws.h"

namespace gradwire {

class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;
  // By group a device.
  virtual std::vector<int> draw(SearchDraws& draws) = 0;
  // Adds `weight` times the gradient of log p(devices), and `entropy` times that of the entropy of
  // each group's distribution, summed, given the devices of the groups before it.
  virtual void add(const std::vector<int>& devices, double weight, double entropy) = 0;
  // Moves the parameters along what has been added, and forgets it.
  virtual void step() = 0;
};

}  // namespace gradwire
