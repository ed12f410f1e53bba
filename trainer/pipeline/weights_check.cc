#include "trainer/pipeline/weights_check.h"

#include "base/text.h"

namespace gradwire {
namespace {

using Kind = PipelineOpKind;
using Fault = PipelineFaultKind;

}  // namespace

StageWeightsCheck::Outcome StageWeightsCheck::walk(const PipelineOp& op) {
  switch (op.kind) {
    case Kind::kForward:
    case Kind::kBackward:
    case Kind::kBackwardInput:
    case Kind::kBackwardWeight:
    case Kind::kRecompute: return compute(op);
    case Kind::kReduceGradients:
    case Kind::kReduceTied:
    case Kind::kReduceReplicas: return reduce(op);
    case Kind::kOptimizerStep: return step(op);
    case Kind::kStashWeights:
    case Kind::kDropWeights: return stash(op);
    case Kind::kUnshard:
    case Kind::kReshard: return shard(op);
    case Kind::kSendForward:
    case Kind::kReceiveForward:
    case Kind::kSendBackward:
    case Kind::kReceiveBackward: break;
  }
  return {};
}

StageWeightsCheck::Outcome StageWeightsCheck::compute(const PipelineOp& op) {
  const bool reads = op.kind != Kind::kBackwardWeight;  // W needs inputs and output gradients alone
  if (reads && op.version != newest_ && !kept_.contains(op.version)) {
    return {Fault::kVersion, format("reads version %d of the weights, which is not there (expected "
                                    "%d, the newest, or one that STASH keeps)",
                                    op.version, newest_)};
  }
  if (reads && shards_ && !gathered_) {
    return {Fault::kSharded, "reads parameters that are not gathered (expected UNSHARD before it)"};
  }
  if (!gives_weight_gradient(op.kind)) return {};
  if (summed_) {
    return {Fault::kGradients,
            "adds to gradients that are reduced already (expected it before RT, RR and RG)"};
  }
  pending_ = true;
  return {};
}

StageWeightsCheck::Outcome StageWeightsCheck::reduce(const PipelineOp& op) {
  if (op.version != newest_) {
    return {Fault::kVersion, format("reduces gradients for version %d (expected %d, the newest)",
                                    op.version, newest_)};
  }
  if (!pending_) {
    return {Fault::kGradients,
            "reduces gradients where there are none (expected B or W before it)"};
  }
  if (reduced_) return {Fault::kGradients, "follows RG (expected RT and RR first, and RG once)"};
  summed_ = true;
  reduced_ = op.kind == Kind::kReduceGradients;
  replicas_ |= op.kind == Kind::kReduceReplicas;
  return {};
}

StageWeightsCheck::Outcome StageWeightsCheck::step(const PipelineOp& op) {
  if (op.version != newest_) {
    return {Fault::kVersion,
            format("replaces version %d (expected %d, the newest)", op.version, newest_)};
  }
  if (!pending_) {
    return {Fault::kGradients,
            "applies gradients where there are none (expected B or W before it)"};
  }
  if (reduces_ && !reduced_) {
    return {Fault::kGradients, "applies gradients that are not reduced (expected RG before it)"};
  }
  if (replicated_ && !replicas_) {
    return {Fault::kGradients, "applies the gradients of one pipe alone (expected RR before it)"};
  }
  ++newest_;
  pending_ = summed_ = reduced_ = replicas_ = false;
  return {};
}

StageWeightsCheck::Outcome StageWeightsCheck::stash(const PipelineOp& op) {
  if (op.kind == Kind::kDropWeights) {
    if (kept_.erase(op.version) > 0) return {};
    return {Fault::kVersion, format("drops version %d, which STASH does not keep", op.version)};
  }
  if (op.version != newest_) {
    return {Fault::kVersion,
            format("keeps version %d (expected %d, the newest)", op.version, newest_)};
  }
  if (kept_.insert(op.version).second) return {};
  return {Fault::kVersion, format("keeps version %d twice", op.version)};
}

StageWeightsCheck::Outcome StageWeightsCheck::shard(const PipelineOp& op) {
  const bool gathers = op.kind == Kind::kUnshard;
  if (gathers == gathered_) {
    return {Fault::kSharded, gathers
                                 ? "gathers parameters that are gathered (expected RESHARD first)"
                                 : "drops parameters that are not gathered (expected UNSHARD "
                                   "first)"};
  }
  gathered_ = gathers;
  return {};
}

StageWeightsCheck::Outcome StageWeightsCheck::end() const {
  if (pending_ && steps_) {
    return {Fault::kGradients,
            "is the stage's last gradient and not applied (expected OPT behind "
            "it)"};
  }
  if (pending_ && reduces_ && !reduced_) {
    return {Fault::kGradients,
            "is the stage's last gradient and not reduced (expected RG behind "
            "it)"};
  }
  return {};
}

}  // namespace gradwire
