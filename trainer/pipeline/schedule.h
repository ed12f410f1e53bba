// A pipeline schedule as data: for each rank one ordered list of operations, and which rank holds
// which stage. What is checked (check.h) is what is simulated (simulate.h) and what runs.
//
// "Rank" is a coordinate of the mesh's pp axis. A schedule covers one step over a mini-batch, or,
// where weights have versions, a run without flushes over a number of micro-batches. Pure values:
// copying, comparing and reading them is safe from any thread.
#pragma once

#include <vector>

#include "trainer/pipeline/op.h"

namespace gradwire {

struct PipelineSchedule {
  int micro_batches = 0;  // numbered from 0; each goes through the stages of one pipe
  std::vector<std::vector<int>> rank_of = {};       // [pipe][stage]; pipes have the same stages
  std::vector<std::vector<PipelineOp>> ranks = {};  // [rank], in the order of execution
  // [stage]: how many of a model's layers it has, in model order; empty: cut by their costs.
  std::vector<int> layers = {};

  int pipes() const { return static_cast<int>(rank_of.size()); }
  int stages() const { return rank_of.empty() ? 0 : static_cast<int>(rank_of.front().size()); }
  int size() const { return static_cast<int>(ranks.size()); }  // ranks
  int holder(const PipelineOp& op) const { return rank_of[op.pipe][op.stage]; }

  friend bool operator==(const PipelineSchedule&, const PipelineSchedule&) = default;
};

// No operations yet; stage s is on rank s % ranks, `chunks` stages a rank. With one chunk: stage s
// on rank s. Wants at least one of each.
PipelineSchedule looped_placement(int ranks, int chunks, int micro_batches);

// No operations yet; two stages a rank, in V: stages 0 to ranks - 1 on ranks 0 to ranks - 1, the
// others on the way back, so that rank 0 has the first and the last one. Wants at least one of
// each.
PipelineSchedule v_placement(int ranks, int micro_batches);

// No operations yet; two pipes that go opposite ways: rank r has stage r of pipe 0 and stage
// ranks - 1 - r of pipe 1. Wants at least one of each.
PipelineSchedule both_ways_placement(int ranks, int micro_batches);

// How many operations all ranks have together.
std::size_t count_ops(const PipelineSchedule& schedule);
// Whether any operation is SF, RF, SB or RB: whether it has been lowered (lower.h).
bool has_transfers(const PipelineSchedule& schedule);

}  // namespace gradwire
