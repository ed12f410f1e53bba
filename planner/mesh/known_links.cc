#include "planner/mesh/known_links.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace gradwire {

KnownLinks::Key KnownLinks::key_of(const MeshChoice& choice) {
  return {choice.dp, choice.tp, choice.pp, choice.pipes()};
}

const MeshLinks& KnownLinks::of(const MeshChoice& choice) {
  const Key key = key_of(choice);
  const auto known = all_.find(key);
  if (known != all_.end()) return known->second;
  return all_.emplace(key, mesh_links(cluster_, choice)).first->second;
}

const MeshLinks& KnownLinks::slowest_of(const MeshChoice& choice) {
  const Key key = key_of(choice);
  const auto known = slowest_.find(key);
  if (known != slowest_.end()) return known->second;
  MeshLinks links = of(choice);
  const auto slowness = [&](const MeshReplica& replica) {
    double sum = 0;
    for (const int type : replica.types) {
      sum += 1 / cluster_.types[static_cast<std::size_t>(type)].macs_per_second;
    }
    return sum;
  };
  links.replicas = {*std::ranges::max_element(links.replicas, {}, slowness)};
  return slowest_.emplace(key, std::move(links)).first->second;
}

}  // namespace gradwire
