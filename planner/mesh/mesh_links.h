// What joins the ranks of a mesh on a cluster, and which of its replicas are alike.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/mesh/mesh_choice.h"

namespace gradwire {

// The slowest hop of a ring of `members` ranks, or of one message between two.
struct MeshLink {
  int members = 1;
  std::int64_t latency = 0;  // nanoseconds a message
  double byte = 0;           // nanoseconds
  double processor = 0;      // nanoseconds of the processor that computes, of a byte each way
  const LinkTimes* times = nullptr;  // what a profile knows besides; the cluster's
  friend auto operator<=>(const MeshLink&, const MeshLink&) = default;
};

// Replicas whose devices and links are alike at every rank of the pipeline.
struct MeshReplica {
  int number = 0;  // the first one of them
  int count = 1;
  std::vector<int> types = {};                        // by rank of the pipeline: the slowest of tp
  std::vector<MeshLink> sums = {};                    // likewise: the ring of tp
  std::map<std::pair<int, int>, MeshLink> hops = {};  // between ranks of the pipeline
};

// Rank (p * dp + d) * tp + t of the job is on the device of that number, as base/mesh.h numbers
// ranks. Messages of hops and of sums are waited for: where a profile has measured that, it is in
// their latency. A port that several of the ranks that do the same at the same time share divides
// its bandwidth among them: rings of tp, of the replicas of a stage (under chimera of all stages),
// and messages from one rank of all pipelines to the next.
struct MeshLinks {
  std::vector<MeshReplica> replicas = {};
  std::vector<MeshLink> data = {};  // by rank of the pipeline: the ring of the replicas of its
                                    // stages, under chimera those of both pipes
  // Likewise, where each of them sends to each.
  std::vector<MeshLink> direct = {};
  // By rank of the pipeline: bytes of the device that has least, among all replicas.
  std::vector<std::int64_t> memory = {};
};

// `choice.ranks()` must be the cluster's devices.
MeshLinks mesh_links(const Cluster& cluster, const MeshChoice& choice);

}  // namespace gradwire
