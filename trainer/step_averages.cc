#include "trainer/step_averages.h"

#include <algorithm>

namespace gradwire {

Status StepAverages::begin(Strategy& strategy, RunningStatistics& running, double loss,
                           bool skipped) {
  if (averaged_) losses_.clear();
  averaged_ = false;
  losses_.push_back(loss);
  // What did not fit into 16 bits would spoil them.
  if (skipped) running.discard_statistics();
  counted_ = !skipped && !running.statistics().empty();
  if (counted_) GW_TRY(running.take_statistics());
  meets_ = strategy.exchange().meets();
  if (counted_ && (apart_ || !meets_)) {
    running.commit();
    apart_ = true;
    counted_ = false;
  }
  return meets_ ? strategy.consensus().start_mean(gather(running), Scope::kData) : Status();
}

Status StepAverages::end(Strategy& strategy, RunningStatistics& running, int ranks) {
  if (!meets_) return {};
  meets_ = false;
  GW_TRY(strategy.consensus().finish_mean());
  scatter(running, ranks);
  return {};
}

Status StepAverages::settle(Strategy& strategy, RunningStatistics& running, int ranks) {
  if (averaged_) return {};
  GW_TRY(strategy.consensus().mean(gather(running), Scope::kData));
  scatter(running, ranks);
  return {};
}

std::span<double> StepAverages::gather(RunningStatistics& running) {
  values_ = losses_;
  if (apart_) {
    const std::span<const float> own = running.buffer_values();
    values_.insert(values_.end(), own.begin(), own.end());
  } else if (counted_) {
    values_.insert(values_.end(), running.statistics().begin(), running.statistics().end());
  }
  return values_;
}

void StepAverages::scatter(RunningStatistics& running, int ranks) {
  const std::span<const double> rest = std::span(values_).subspan(losses_.size());
  std::copy_n(values_.begin(), losses_.size(), losses_.begin());
  averaged_ = true;
  if (apart_) {
    std::transform(rest.begin(), rest.end(), running.buffer_values().begin(),
                   [](double value) { return static_cast<float>(value); });
    apart_ = false;
  } else if (counted_) {
    std::transform(rest.begin(), rest.end(), running.statistics().begin(),
                   [ranks](double mean) { return mean * ranks; });
    running.commit();
    counted_ = false;
  }
}

}  // namespace gradwire
