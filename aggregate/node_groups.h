// The communicators of exchanges on two levels.
#pragma once

#include <cstdint>
#include <memory>

#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// Nodes may have unequal numbers of ranks. The first `owners` ranks of each own shards of what
// travels between nodes: as many as the smallest node has.
struct NodeGroups {
  std::unique_ptr<Communicator> inner;  // the ranks of this node, in their order
  std::unique_ptr<Communicator> outer;  // one rank of every node; null where this one owns nothing
  int nodes = 1;
  int node = 0;  // this rank's; also its rank in `outer`
  int owners = 1;
  bool known = false;  // which ranks share a node; if not, every rank is one

  std::uint64_t bytes_sent() const {
    return inner->bytes_sent() + (outer == nullptr ? 0 : outer->bytes_sent());
  }
};

// Collective over `communicator`, which outlives the result.
Result<std::unique_ptr<NodeGroups>> split_nodes(Communicator& communicator);

}  // namespace gradwire
