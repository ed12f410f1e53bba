// A stage's weights and gradients along its rank's list: which versions are there, whether they are
// gathered, which gradients are reduced and applied. A part of check_pipeline().
#pragma once

#include <set>
#include <string>

#include "trainer/pipeline/check.h"

namespace gradwire {

class StageWeightsCheck {
 public:
  // Before the walk: which of these operations the stage has anywhere, and how many pipes there
  // are.
  void expect(PipelineOpKind kind, int pipes) {
    replicated_ = pipes > 1;
    steps_ |= kind == PipelineOpKind::kOptimizerStep;
    reduces_ |= kind == PipelineOpKind::kReduceGradients;
    shards_ |= kind == PipelineOpKind::kUnshard || kind == PipelineOpKind::kReshard;
  }

  struct Outcome {
    PipelineFaultKind kind = PipelineFaultKind::kVersion;
    std::string message = {};  // empty: nothing is wrong
  };
  // The stage's next operation.
  Outcome walk(const PipelineOp& op);
  // Behind its last one.
  Outcome end() const;

 private:
  Outcome compute(const PipelineOp& op);
  Outcome reduce(const PipelineOp& op);
  Outcome step(const PipelineOp& op);
  Outcome stash(const PipelineOp& op);
  Outcome shard(const PipelineOp& op);

  bool steps_ = false;
  bool reduces_ = false;
  bool shards_ = false;
  int newest_ = 0;           // version
  std::set<int> kept_ = {};  // other versions
  bool gathered_ = false;
  bool pending_ = false;  // gradients since the last OPT
  bool summed_ = false;   // RT, RR or RG of them
  bool reduced_ = false;  // RG of them
  bool replicated_ = false;
  bool replicas_ = false;  // RR of them
};

}  // namespace gradwire
