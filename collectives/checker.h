// Proves things about schedules without a network: all ranks' schedules of one operation are run
// together over queues, on symbols instead of numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// What a set of schedules is meant to do.
struct ScheduleClaim {
  enum class Operation : std::uint8_t {
    kAllReduce,      // every element of kOut: the reduction of all ranks', finished once
    kReduceScatter,  // elems: of kOut, a row of kIn
    kAllGather,      // elems_of[r]: of rank r's block
    kAllToAll,       // counts[i * size + j]: from rank i to rank j
    kBroadcast,      // root's elements everywhere
    kBarrier,        // nobody is done before it has heard, through others, from all
  } operation = Operation::kAllReduce;
  int size = 1;
  std::int64_t elems = 0;
  int root = 0;
  bool rank_order = false;                // reductions are left folds over ranks from rank 0 on
  std::vector<std::int64_t> counts = {};  // kAllGather: size of them; kAllToAll: size * size
};

// What one rank did.
struct ScheduleCost {
  int rounds = 0;
  std::int64_t messages_sent = 0;
  std::int64_t elems_sent = 0;
  std::int64_t elems_received = 0;
};

// Runs schedules[0 .. size) and returns what each rank's costs were, if
//   - all of them end, and no message is left over or has another length than its receiver wants,
//   - no round writes elements that another message of the round reads or writes,
//   - ranges are cells (schedule.h), inside their buffers, and never read before they are written,
//   - every element of every rank's kOut is what `claim` says: each contribution exactly once, and
//     kFinish exactly once on complete reductions.
// Else kInternal, saying which rank, round and range broke what.
Result<std::vector<ScheduleCost>> check_schedules(std::span<const Schedule> schedules,
                                                  const ScheduleClaim& claim);

}  // namespace gradwire
