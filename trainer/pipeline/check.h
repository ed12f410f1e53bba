// Whether a schedule trains: every operation once and on the right rank, in a possible order, with
// weights that exist, gradients that are all reduced and applied, transfers that meet, and ranks
// that come to their ends. What passes runs in every timing without waiting for itself.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "trainer/pipeline/progress.h"
#include "trainer/pipeline/schedule.h"

namespace gradwire {

enum class PipelineFaultKind : std::uint8_t {
  kShape,      // no ranks, stages or micro-batches, or too many; a rank without a stage
  kUnknown,    // an operation of a pipe, stage or micro-batch that is not there
  kPlace,      // on another rank than the stage's, or on two pipes
  kTwice,      // an operation twice, or B beside I and W
  kMissing,    // a micro-batch's operation, or a transfer's other end
  kOrder,      // behind what needs it
  kVersion,    // weights that are not there, or others than the forward's
  kSharded,    // parameters that are not gathered, gathered twice, or dropped twice
  kGradients,  // a gradient that is not reduced or not applied; a reduction or step of nothing
  kTransfer,   // a transfer between stages of one rank, or to no stage
  kContexts,   // more contexts than allowed
  kBlocked,    // ranks wait for one another
};

// "shape", "unknown", ..., "blocked".
std::string_view to_string(PipelineFaultKind kind);

struct PipelineFault {
  static constexpr std::size_t kNowhere = SIZE_MAX;

  PipelineFaultKind kind = PipelineFaultKind::kShape;
  int rank = -1;                 // whose list; -1: no rank's
  std::size_t index = kNowhere;  // of `op` in that list; kNowhere: it is missing, or there is none
  PipelineOp op = {};            // the operation at fault, or that is missing
  std::string message = {};      // one sentence for people: what is wrong, what was expected
  std::vector<BlockedRank> frontier = {};  // kBlocked: the ranks that are not at their ends

  // kInvalidArgument, with the place in front of the message.
  Status status() const;
};

struct PipelineRules {
  PipelineLinks links = PipelineLinks::kDirect;  // how `schedule` was lowered (lower.h)
  int most_contexts = 0;                         // open on one rank at a time; 0: any number
};

struct PipelineCheck {
  std::optional<PipelineFault> fault = {};  // the first one found; none: the schedule is valid
  std::vector<int> contexts = {};           // by rank: the most open at a time, where valid
  // Likewise: the most versions of the weights at a time, the newest among them, of its stage that
  // has most.
  std::vector<int> versions = {};

  bool ok() const { return !fault.has_value(); }
  // The fault's, or success.
  Status status() const { return fault ? fault->status() : Status(); }
};

// Any schedule, however wrong. Time and memory grow with the number of operations and of places.
//
// A context is what a forward keeps for its backward: open from F to B, or to W where the backward
// is split. Weights have version 0 first; OPT#v makes v + 1 of v, the newest; operations may read
// the newest and those that STASH keeps until DROP, and a micro-batch's backward reads the version
// of its forward. Where a stage has an OPT, all its gradients must be followed by one; likewise RG.
// RT and RR come before RG. Where there are several pipes RR comes before OPT, and a stage has RR
// on all of them or on none. Where a stage has UNSHARD, what reads its weights is between that and
// RESHARD.
PipelineCheck check_pipeline(const PipelineSchedule& schedule, const PipelineRules& rules = {});

}  // namespace gradwire
