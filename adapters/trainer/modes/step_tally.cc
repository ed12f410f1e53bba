#include "adapters/trainer/modes/step_tally.h"

namespace gradwire {

Status StepTally::add(std::span<const double> losses) {
  const std::lock_guard lock(mutex_);
  for (const double loss : losses) {
    GW_TRY(error_);
    losses_ += loss;
    if (++heard_ % workers_ != 0) continue;
    ModeStep step{.step = heard_ / workers_ - 1, .loss = losses_ / static_cast<double>(workers_)};
    step.lr = options_.rate(step.step);
    losses_ = 0;
    if (!on_step_) continue;
    if (model_) step.params = model_();
    error_ = on_step_(step);
  }
  return error_;
}

void StepTally::fail(const Status& error) {
  const std::lock_guard lock(mutex_);
  if (error_.ok()) error_ = error;
}

Status StepTally::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace gradwire
