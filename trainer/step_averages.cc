#include "trainer/step_averages.h"

#include <algorithm>

namespace gradwire {

Status StepAverages::begin(Strategy& strategy, BatchPass& pass, double loss, bool skipped) {
  if (averaged_) losses_.clear();
  averaged_ = false;
  losses_.push_back(loss);
  // What did not fit into 16 bits would spoil them.
  if (skipped) pass.discard_statistics();
  counted_ = !skipped && !pass.statistics().empty();
  if (counted_) GW_TRY(pass.take_statistics());
  meets_ = strategy.exchange().meets();
  if (counted_ && (apart_ || !meets_)) {
    pass.commit(1);
    apart_ = true;
    counted_ = false;
  }
  return meets_ ? strategy.consensus().start_mean(gather(pass), Scope::kData) : Status();
}

Status StepAverages::end(Strategy& strategy, BatchPass& pass, int ranks) {
  if (!meets_) return {};
  meets_ = false;
  GW_TRY(strategy.consensus().finish_mean());
  scatter(pass, ranks);
  return {};
}

Status StepAverages::settle(Strategy& strategy, BatchPass& pass, int ranks) {
  if (averaged_) return {};
  GW_TRY(strategy.consensus().mean(gather(pass), Scope::kData));
  scatter(pass, ranks);
  return {};
}

std::span<double> StepAverages::gather(BatchPass& pass) {
  values_ = losses_;
  if (apart_) {
    const std::span<const float> running = pass.buffer_values();
    values_.insert(values_.end(), running.begin(), running.end());
  } else if (counted_) {
    values_.insert(values_.end(), pass.statistics().begin(), pass.statistics().end());
  }
  return values_;
}

void StepAverages::scatter(BatchPass& pass, int ranks) {
  const std::span<const double> rest = std::span(values_).subspan(losses_.size());
  std::copy_n(values_.begin(), losses_.size(), losses_.begin());
  averaged_ = true;
  if (apart_) {
    std::transform(rest.begin(), rest.end(), pass.buffer_values().begin(),
                   [](double value) { return static_cast<float>(value); });
    apart_ = false;
  } else if (counted_) {
    std::copy(rest.begin(), rest.end(), pass.statistics().begin());
    pass.commit(ranks);
    counted_ = false;
  }
}

}  // namespace gradwire
