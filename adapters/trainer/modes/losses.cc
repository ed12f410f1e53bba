#include "adapters/trainer/modes/losses.h"

#include <cstddef>

#include "base/elements.h"

namespace gradwire {

namespace {

Status fold_over_ranks(Communicator& communicator, std::span<double> values, ReduceOp op) {
  GW_ASSIGN(Work work, communicator.all_reduce(
                           view_of(values), op,
                           {.algorithm = "canonical", .deadline = std::nullopt, .stream = {}}));
  return work.wait();
}

}  // namespace

Status average_over_ranks(Communicator& communicator, std::span<double> values) {
  return values.empty() ? Status() : fold_over_ranks(communicator, values, ReduceOp::kMean);
}

Status average_over_ranks(Communicator& communicator, std::span<double> values,
                          Interruption* interruption) {
  if (interruption == nullptr) return average_over_ranks(communicator, values);
  WithWord sent(values, interruption);
  GW_TRY(fold_over_ranks(communicator, sent.all(), ReduceOp::kSum));
  sent.arrived();
  const double share = 1.0 / communicator.size();
  for (double& value : values) value *= share;
  return {};
}

Status PendingSteps::tell(Communicator& communicator, const ModeOptions& options,
                          const OnModeStep& on_step, std::span<const float> params) {
  const std::span<double> shared = options.losses ? std::span(losses_) : std::span<double>();
  GW_TRY(average_over_ranks(communicator, shared, options.interruption));
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const bool last = i + 1 == losses_.size();
    ModeStep step;
    step.step = told_++;
    step.loss = losses_[i];
    step.lr = rates_[i];
    step.together = true;
    if (last) step.params = params;
    if (last) step.compute_seconds = compute_seconds_;
    if (on_step) GW_TRY(on_step(step));
  }
  losses_.clear();
  rates_.clear();
  compute_seconds_ = 0;
  return {};
}

}  // namespace gradwire
