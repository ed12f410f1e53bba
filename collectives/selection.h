// From the names that callers and flags use to schedules.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// Operations that have more than one algorithm, or may have one day.
enum class Collective : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kBarrier
};

// "all_reduce", ...: as errors and `gradwire inspect schedule` spell it.
std::string_view to_string(Collective collective);

// The algorithms of a collective, best known first.
std::vector<std::string_view> algorithms_of(Collective collective);

// `name` itself if it is one of them; what "auto" stands for; else kInvalidArgument with the list.
Result<std::string_view> resolve_algorithm(Collective collective, std::string_view name);

// The schedule of an algorithm that resolve_algorithm() returned. elems: of the tensor for
// all_reduce and broadcast, of a row for the others.
Schedule make_schedule(Collective collective, std::string_view algorithm, int rank, int size,
                       std::int64_t elems, int root = 0);

}  // namespace gradwire
