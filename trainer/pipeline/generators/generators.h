// The schedules that are generated: for `ranks` ranks (at least 1) and `micro_batches`
// micro-batches (at least 1), of F and B, or F, I and W. All are valid (check.h) for any two such
// numbers, fewer micro-batches than ranks among them. What stages cost is not their business:
// stages may be uneven. Operations of the step's end and transfers are added by step_ops.h and
// lower.h.
//
// Each rank has one stage, or `chunks` stages (at least 1), rank r those with stage % ranks == r.
// On every stage backwards are in ascending order of micro-batches, and so are weight gradients:
// one rank that adds the gradients of its micro-batches in ascending order gets the same bits.
#pragma once

#include "trainer/pipeline/schedule.h"

namespace gradwire {

// All forwards, then all backwards. Contexts: micro_batches on every rank.
// Source: Huang et al., "GPipe", NeurIPS 2019; backwards in ascending order.
PipelineSchedule gpipe_schedule(int ranks, int micro_batches);

// One forward, one backward: stage s starts with min(ranks - s - 1, micro_batches) forwards, then
// each forward is followed by a backward. Contexts: min(ranks - s, micro_batches).
// Source: Narayanan et al., "PipeDream", SOSP 2019, with a flush: Narayanan et al., "PipeDream-2BW
// and PipeDream-Flush", ICML 2021; the early backward of Fan et al., "DAPPLE", PPoPP 2021.
PipelineSchedule one_f_one_b_schedule(int ranks, int micro_batches);

// Interleaved 1F1B: micro-batches go in groups of `ranks`, the last group with what is left,
// through chunk after chunk. Contexts on rank r: min(2 (ranks - r - 1) + (chunks - 1) ranks + 1,
// micro_batches chunks). Where `ranks` does not divide micro_batches, the fixed pattern of warm-up
// and alternation may wait for itself in the last group; ranks then take backwards as soon as they
// can (forward 1, backward 2 units long), within the same contexts.
// Source: Narayanan et al., "Efficient large-scale language model training on GPU clusters using
// Megatron-LM", SC 2021, for multiples of `ranks`.
PipelineSchedule interleaved_schedule(int ranks, int micro_batches, int chunks);

// ZB-H1: 1F1B whose backward is split; weight gradients on stage s lag by s micro-batches and fill
// what would be idle. Contexts: min(ranks, micro_batches) on every rank.
// Source: Qi et al., "Zero bubble pipeline parallelism", ICLR 2024.
PipelineSchedule zero_bubble_h1_schedule(int ranks, int micro_batches);

// All micro-batches through chunk 0, then chunk 1, ...; backwards the other way round. Contexts:
// micro_batches chunks on every rank.
// Source: Lamy-Poirier, "Breadth-first pipeline parallelism", MLSys 2023.
PipelineSchedule breadth_first_schedule(int ranks, int micro_batches, int chunks);

}  // namespace gradwire
