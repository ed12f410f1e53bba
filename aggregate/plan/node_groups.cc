#include "aggregate/plan/node_groups.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace gradwire {

Result<std::unique_ptr<NodeGroups>> split_nodes(Communicator& communicator, const Joins& joins) {
  const bool nccl = communicator.algorithm_for(OpKind::kAllReduce, 0, "nccl").has_value();
  if (joins.nccl && !nccl) {
    return Status(Code::kUnsupported,
                  "aggregator: inter_node=nccl needs a communicator over NCCL (got " +
                      communicator.describe() + "); write inter_node=messages");
  }
  auto groups = std::make_unique<NodeGroups>();
  const auto rank = static_cast<std::size_t>(communicator.rank());
  std::vector<int> node_of = communicator.nodes();
  groups->known = !node_of.empty();
  if (!groups->known) {
    node_of.resize(static_cast<std::size_t>(communicator.size()));
    std::iota(node_of.begin(), node_of.end(), 0);
  }
  groups->nodes = 1 + *std::max_element(node_of.begin(), node_of.end());
  groups->node = node_of[rank];
  std::vector<int> ranks(static_cast<std::size_t>(groups->nodes));
  int place = 0;  // in this rank's node
  for (std::size_t r = 0; r < node_of.size(); ++r) {
    if (r == rank) place = ranks[static_cast<std::size_t>(groups->node)];
    ++ranks[static_cast<std::size_t>(node_of[r])];
  }
  groups->owners = *std::min_element(ranks.begin(), ranks.end());
  GW_ASSIGN(groups->inner, communicator.split(groups->node, communicator.rank()));
  const int color = place < groups->owners ? place : -1;
  if (joins.nccl) {
    GW_ASSIGN(groups->outer_nccl, communicator.split(color, groups->node));
  }
  if (joins.messages) {
    GW_ASSIGN(groups->outer, communicator.split(color, groups->node, {.messages_only = nccl}));
  }
  groups->nccl = nccl;
  return groups;
}

}  // namespace gradwire
