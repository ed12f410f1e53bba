// Whether the ranks of a schedule come to its end, whatever operations cost.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/pipeline/schedule.h"

namespace gradwire {

// How activations and their gradients get from stage to stage.
enum class PipelineLinks : std::uint8_t {
  kDirect,   // a schedule without transfers: what a stage has made is there for its neighbour
  kTagged,   // a send leaves at once, a receive is posted and waits for nothing: any order of
             // receives will do, as over tagged messages
  kOrdered,  // a send and its receive wait for one another, and a rank takes its transfers strictly
             // one after another: as over NCCL without groups, whose messages have no tags
};

// "direct", "tagged", "ordered".
std::string_view to_string(PipelineLinks links);

// A rank that cannot go on.
struct BlockedRank {
  int rank = 0;
  std::size_t index = 0;  // of the operation that it stands before, in its list
  PipelineOp op = {};
  PipelineOp missing = {};  // what it waits for
  int holder = 0;           // the rank that has to do that

  friend bool operator==(const BlockedRank&, const BlockedRank&) = default;
};

// "rank 1 waits at 1F0 (operation 2) for 0F0 of rank 0".
std::string to_string(const BlockedRank& blocked);

// Runs the schedule without time until no rank can go on; empty: all have come to their ends, and
// so they will in every timing, since operations only wait for one another. Wants operations within
// the schedule's pipes, stages and micro-batches, each of which is on one pipe. A reduction of tied
// parameters waits for that of the pipe's other end, one over replicas for those of the other
// pipes; RG waits for no rank here: replicas run the same schedule.
std::vector<BlockedRank> blocked_frontier(const PipelineSchedule& schedule,
                                          PipelineLinks links = PipelineLinks::kDirect);

// The other ends that an operation has to meet: a transfer's, RT's or RR's, of other ranks. Empty:
// none. `op` must be within the schedule.
std::vector<PipelineOp> met_ops(const PipelineSchedule& schedule, const PipelineOp& op);

}  // namespace gradwire
