// The communicators of exchanges on two levels.
#pragma once

#include <cstdint>
#include <memory>

#include "aggregate/plan/keys.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// Nodes may have unequal numbers of ranks. The first `owners` ranks of each own shards of what
// travels between nodes: as many as the smallest node has.
struct NodeGroups {
  std::unique_ptr<Communicator> inner;  // the ranks of this node, in their order
  // One rank of every node; null where this one owns nothing, or nobody asked for it. Of
  // communicators without NCCL the first is all there is.
  std::unique_ptr<Communicator> outer;
  std::unique_ptr<Communicator> outer_nccl;
  int nodes = 1;
  int node = 0;  // this rank's; also its rank in `outer`
  int owners = 1;
  bool known = false;  // which ranks share a node; if not, every rank is one
  bool nccl = false;   // a device's tensors go by NCCL in `inner`

  // Requires one that was asked for, of a rank that owns something.
  Communicator& between(Between between) const {
    return between == Between::kNccl ? *outer_nccl : *outer;
  }
  std::uint64_t bytes_sent() const { return inner->bytes_sent() + bytes_sent_between(); }
  std::uint64_t bytes_sent_between() const {
    std::uint64_t bytes = 0;
    for (const Communicator* const level : {outer.get(), outer_nccl.get()}) {
      if (level != nullptr) bytes += level->bytes_sent();
    }
    return bytes;
  }
};

// How nodes are joined, by some rule or other.
struct Joins {
  bool messages = false;
  bool nccl = false;
  void note(Between between) { (between == Between::kNccl ? nccl : messages) = true; }
};

// Collective over `communicator`, which outlives the result. Between nodes it makes a communicator
// over messages, whatever `communicator` has besides, and one with NCCL. kUnsupported where that is
// asked for and `communicator` has none.
Result<std::unique_ptr<NodeGroups>> split_nodes(Communicator& communicator, const Joins& joins);

}  // namespace gradwire
