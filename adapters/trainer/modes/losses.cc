#include "adapters/trainer/modes/losses.h"

#include <cstddef>

#include "base/elements.h"

namespace gradwire {

Status average_over_ranks(Communicator& communicator, std::span<double> values) {
  if (values.empty()) return {};
  GW_ASSIGN(Work work, communicator.all_reduce(
                           view_of(values), ReduceOp::kMean,
                           {.algorithm = "canonical", .deadline = std::nullopt, .stream = {}}));
  return work.wait();
}

Status average_over_ranks(Communicator& communicator, std::span<double> values,
                          Interruption* interruption) {
  WithWord sent(values, interruption);
  GW_TRY(average_over_ranks(communicator, sent.all()));
  sent.arrived(communicator.size());
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
