// What joins the ranks of the meshes that a search asks for again and again.
#pragma once

#include <map>
#include <tuple>

#include "planner/cluster/cluster.h"
#include "planner/mesh/mesh_choice.h"
#include "planner/mesh/mesh_links.h"

namespace gradwire {

// mesh_links(), each found once: schedules, micro-batches and the rest of a choice change nothing
// in it but how many pipes there are. The cluster must outlive it. Not thread-safe.
class KnownLinks {
 public:
  explicit KnownLinks(const Cluster& cluster) : cluster_(cluster) {}

  // Valid as long as this object. `choice.ranks()` must be the cluster's devices.
  const MeshLinks& of(const MeshChoice& choice);
  // Of the slowest replica alone, which no step is faster than: no other is waited for less.
  const MeshLinks& slowest_of(const MeshChoice& choice);

 private:
  using Key = std::tuple<int, int, int, int>;  // dp, tp, pp, pipes
  static Key key_of(const MeshChoice& choice);

  const Cluster& cluster_;
  std::map<Key, MeshLinks> all_;
  std::map<Key, MeshLinks> slowest_;
};

}  // namespace gradwire
