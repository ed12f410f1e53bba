// From what is computed to what is sent, and to the whole step: passes over generated schedules.
#pragma once

#include "gradwire/status.h"
#include "trainer/pipeline/progress.h"
#include "trainer/pipeline/schedule.h"

namespace gradwire {

struct PipelineStepOps {
  bool reduce = false;   // RG of every stage
  bool tied = false;     // RT of the first and the last stage, if there are two
  bool replicas = true;  // RR of every stage, if there are several pipes
  bool sharded = false;  // UNSHARD and RESHARD around every run of one stage's operations
  bool step = true;      // OPT of every stage
};

// Adds what ends a step: reductions as soon as the stage's gradients are whole, behind the rank's
// last computation those of tied parameters and what follows them; then OPT. Where there are
// several pipes all reductions are behind the last computation: RT, by pipe, then RR and RG, by
// stage, an order that ranks agree on. Wants a valid schedule (check.h) that has none of these.
// Weights have one version.
PipelineSchedule with_step_ops(const PipelineSchedule& schedule, const PipelineStepOps& ops);

// Adds SF, RF, SB and RB between stages of different ranks; leaves the rest in its order.
//
//   kTagged   a send follows what makes it; a receive is posted before the computation that comes
//             before the one that reads it, so that it arrives beside it
//   kOrdered  one list of all messages, by the end of what makes them under costs F = I = W = R =
//   1,
//             B = 2, all else 0, ties by (micro-batch, sending stage, forward before backward,
//             pipe). A rank's transfers are in the list's order, each before whatever of the rank's
//             starts at that time or later. Every wait is thus for something earlier: no deadlock,
//             even where a send waits for its receive.
//
// kInvalidArgument: a schedule that is not valid without transfers (check_pipeline()). kDirect
// gives the schedule back.
Result<PipelineSchedule> lower_pipeline(const PipelineSchedule& schedule, PipelineLinks links);

// What evaluation runs: F, its transfers, and UNSHARD and RESHARD around it, in their order. Ranks
// that come to their ends in `schedule`, lowered or not, do so here: what is left waits for nothing
// that is gone. `schedule` must be valid (check.h); what comes back has no backward and is not.
PipelineSchedule forward_part(const PipelineSchedule& schedule);

}  // namespace gradwire
