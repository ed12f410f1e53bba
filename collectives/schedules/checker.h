// Proves things about schedules without a network: all ranks' schedules of one operation are run
// together over queues, on symbols instead of numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/schedules/op_traits.h"
#include "gradwire/schedule.h"
#include "gradwire/status.h"

namespace gradwire {

// What a set of schedules is meant to do.
//   kAllReduce      every element of kOut: the reduction of all ranks', finished once, combined and
//                   rounded in the same way on all ranks
//   kReduceScatter  kOut: rank's row of the reduction of kIn, whose rows are `counts` long
//   kAllGather      kOut: all ranks' kIn, counts[r] long, one after another
//   kAllToAll       counts[i * size + j]: from rank i to rank j
//   kBroadcast      root's elements everywhere
//   kBarrier        nobody is done before it has heard, through others, from all
//   kReduce         kOut of root alone: the reduction of all ranks', finished once
//   kGather         kOut of root alone: as kAllGather
//   kScatter        kOut: rank's row, counts[rank] long, of root's kIn
//   kExclusiveScan  kOut: the reduction of the ranks below, not finished; rank 0's is left alone
//   kSend           kOut: the elements of the rank before, rank 0's being the last's
struct ScheduleClaim {
  OpKind operation = OpKind::kAllReduce;
  int size = 1;
  std::int64_t elems = 0;  // kReduceScatter: of a row, where there are no counts
  int root = 0;
  bool rank_order = false;  // reductions are left folds over ranks from rank 0 on, rounded once
  std::vector<std::int64_t> counts = {};
  // kIn and kOut share memory as far as the operation lets them: rank's row of the larger buffer is
  // the smaller one.
  bool aliased = false;
};

// What one rank did.
struct ScheduleCost {
  int rounds = 0;  // with messages
  std::int64_t messages_sent = 0;
  std::int64_t elems_sent = 0;
  std::int64_t elems_received = 0;
};

// Runs schedules[0 .. size) and returns what each rank's costs were, if
//   - all of them end, and no message is left over or has another length than its receiver wants,
//   - no message of a round writes elements that another one reads or writes,
//   - ranges are inside their buffers, cells where the schedule is divisible (schedule.h), and
//     never read before they are written,
//   - every element of every rank's kOut is what `claim` says: each contribution exactly once, and
//     kFinish exactly once on complete reductions.
// Else kInternal, saying which rank, round and range broke what.
Result<std::vector<ScheduleCost>> check_schedules(std::span<const Schedule> schedules,
                                                  const ScheduleClaim& claim);

}  // namespace gradwire
