#include "collectives/selection.h"

#include <algorithm>
#include <string>

#include "collectives/schedules/schedules.h"

namespace gradwire {

std::string_view to_string(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return "all_reduce";
    case Collective::kReduceScatter: return "reduce_scatter";
    case Collective::kAllGather: return "all_gather";
    case Collective::kAllToAll: return "all_to_all";
    case Collective::kBroadcast: return "broadcast";
    case Collective::kBarrier: return "barrier";
  }
  return "?";
}

std::vector<std::string_view> algorithms_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter: return {"ring", "canonical"};
    case Collective::kAllGather: return {"ring"};
    case Collective::kAllToAll: return {"pairwise"};
    case Collective::kBroadcast: return {"binomial"};
    case Collective::kBarrier: return {"dissemination"};
  }
  return {};
}

Result<std::string_view> resolve_algorithm(Collective collective, std::string_view name) {
  const std::vector<std::string_view> known = algorithms_of(collective);
  if (name == "auto") return known.front();
  if (const auto found = std::ranges::find(known, name); found != known.end()) return *found;
  std::string text = "no algorithm '" + std::string(name) + "' for " +
                     std::string(to_string(collective)) + " (known: auto";
  for (const std::string_view one : known) text += ", " + std::string(one);
  return Status(Code::kInvalidArgument, text + ")");
}

Schedule make_schedule(Collective collective, std::string_view algorithm, int rank, int size,
                       std::int64_t elems, int root) {
  const bool canonical = algorithm == "canonical";
  switch (collective) {
    case Collective::kAllReduce:
      return canonical ? canonical_all_reduce(rank, size, elems)
                       : ring_all_reduce(rank, size, elems);
    case Collective::kReduceScatter:
      return canonical ? canonical_reduce_scatter(rank, size, elems)
                       : ring_reduce_scatter(rank, size, elems);
    case Collective::kAllGather: return ring_all_gather(rank, size, elems);
    case Collective::kAllToAll: return pairwise_all_to_all(rank, size, elems);
    case Collective::kBroadcast: return binomial_broadcast(rank, size, root, elems);
    case Collective::kBarrier: return dissemination_barrier(rank, size);
  }
  return {};
}

}  // namespace gradwire
