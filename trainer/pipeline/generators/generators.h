// The schedules that are generated: for `ranks` ranks (at least 1) and `micro_batches`
// micro-batches (at least 1), of F and B, or F, I and W. All are valid (check.h) for any two such
// numbers, fewer micro-batches than ranks among them. What stages cost is not their business:
// stages may be uneven. Operations of the step's end and transfers are added by step_ops.h and
// lower.h.
//
// Each rank has one stage, or `chunks` stages (at least 1), rank r those with stage % ranks == r,
// or two in V (v_placement()). On every stage backwards are in ascending order of micro-batches,
// and so are weight gradients: one rank that adds the gradients of its micro-batches in ascending
// order gets the same bits.
#pragma once

#include "trainer/pipeline/schedule.h"
#include "trainer/pipeline/stream_rule.h"

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

// ZB-V and its two forms with fewer contexts: two stages a rank, in V. Where each F, I and W of a
// stage takes half of what it takes of a whole rank's layers, and micro_batches >= 2 ranks, a rank
// has at most ranks, (ranks + 2) / 2 and (ranks + 4) / 3 contexts of all its layers at a time, in
// whole numbers, and is idle between its first and its last operation: never; at most half; at most
// two thirds of what 1F1B's first rank is. Contexts are never more, whatever the costs.
// Source: Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, section 6; Qi et al., "Pipeline
// parallelism with controllable memory", NeurIPS 2024, whose building blocks the latter two repeat.
PipelineSchedule zero_bubble_v_schedule(int ranks, int micro_batches);
PipelineSchedule zero_bubble_v_half_schedule(int ranks, int micro_batches);
PipelineSchedule zero_bubble_v_min_schedule(int ranks, int micro_batches);

// All micro-batches through chunk 0, then chunk 1, ...; backwards the other way round. Contexts:
// micro_batches chunks on every rank.
// Source: Lamy-Poirier, "Breadth-first pipeline parallelism", MLSys 2023.
PipelineSchedule breadth_first_schedule(int ranks, int micro_batches, int chunks);

// Chimera: two pipes that go opposite ways through the same stages, so that rank r holds stage r
// and stage ranks - 1 - r; the first half of the micro-batches goes down, the other half up. Wants
// even numbers. Contexts: at most ranks. Where forwards take as long as backwards, or half as long,
// and micro_batches == ranks, idle: ranks - 2 forwards, or twice as many.
// Doubled: 2 ranks micro-batches, of which two go forward one right after the other, so that both
// take as long as one backward. Contexts: at most 2 ranks.
// Source: Li and Hoefler, "Chimera", SC 2021, sections III-A and III-E.
PipelineSchedule chimera_schedule(int ranks, int micro_batches);
PipelineSchedule doubled_chimera_schedule(int ranks);

// So many steps of a rule, from start to drain.
PipelineSchedule stream_schedule(const StreamRule& rule, int steps);

// PipeDream: one forward, one backward without a flush, and OPT behind each backward of a stage.
// Forward and backward of a micro-batch read one version: without vertical sync the newest one at
// its forward, so that stage s reads max(0, i - (ranks - 1 - s)) for micro-batch i and has
// ranks - s versions, the newest among them; with it max(0, i - (ranks - 1)) on all stages, each of
// which has `ranks` versions. Contexts: min(ranks - s, micro_batches). Where an F and a B take as
// long on all stages and OPT nothing, ranks work micro_batches / (micro_batches + ranks - 1) of the
// time.
// Source: Narayanan et al., "PipeDream", SOSP 2019, sections 3.2 and 3.3.
PipelineSchedule pipedream_schedule(int ranks, int micro_batches, bool vertical_sync);

// PipeDream-2BW: the same with `steps` steps of so many micro-batches, and OPT behind each. Step t
// reads version max(0, t - 1): two versions on every stage, a delay of one step. Wants at least
// `ranks` micro-batches.
// Source: Narayanan et al., "Memory-efficient pipeline-parallel DNN training", ICML 2021,
// section 3.
PipelineSchedule double_buffered_schedule(int ranks, int micro_batches, int steps);

}  // namespace gradwire
