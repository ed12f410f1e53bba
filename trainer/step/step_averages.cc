#include "trainer/step/step_averages.h"

#include <algorithm>
#include <cmath>

namespace gradwire {

Status StepAverages::begin(Strategy& strategy, RunningStatistics& running, double loss,
                           bool skipped, bool meets) {
  if (averaged_) losses_.clear();
  averaged_ = false;
  losses_.push_back(loss);
  // What did not fit into 16 bits would spoil them.
  if (skipped) running.discard_statistics();
  counted_ = !skipped && !running.statistics().empty();
  if (counted_) GW_TRY(running.take_statistics());
  meets_ = meets && strategy.exchange().meets();
  if (counted_ && (apart_ || !meets_)) {
    running.commit();
    apart_ = true;
    counted_ = false;
  }
  return meets_ ? start(strategy.consensus(), running) : Status();
}

Status StepAverages::end(Strategy& strategy, RunningStatistics& running) {
  if (!meets_) return {};
  meets_ = false;
  Consensus& consensus = strategy.consensus();
  GW_TRY(consensus.finish_sums());
  arrived(consensus.ranks(Scope::kData), running);
  return {};
}

Status StepAverages::settle(Strategy& strategy, RunningStatistics& running) {
  if (averaged_) return {};
  Consensus& consensus = strategy.consensus();
  GW_TRY(start(consensus, running));
  GW_TRY(consensus.finish_sums());
  arrived(consensus.ranks(Scope::kData), running);
  return {};
}

// Each replica's losses are on one of its ranks; what layers remember is on the ranks that hold
// them.
Status StepAverages::start(Consensus& consensus, RunningStatistics& running) {
  values_.clear();
  if (apart_) {
    const std::span<const float> own = running.buffer_values();
    values_.assign(own.begin(), own.end());
  }
  const std::span<double> rest = counted_ ? running.statistics() : std::span(values_);
  parts_ = {ScopedValues{losses_, Scope::kWorld}, ScopedValues{rest, Scope::kData}};
  return consensus.start_sums(std::span(parts_).first(rest.empty() ? 1 : 2));
}

void StepAverages::arrived(int replicas, RunningStatistics& running) {
  const double share = 1.0 / replicas;
  for (double& loss : losses_) loss *= share;
  averaged_ = true;
  if (apart_) {
    std::ranges::transform(values_, running.buffer_values().begin(),
                           [share](double sum) { return static_cast<float>(sum * share); });
    apart_ = false;
  } else if (counted_) {
    running.commit();
    counted_ = false;
  }
}

Status StepAverages::ask(Consensus& consensus) {
  sent_ = averaged_ ? std::vector<double>() : std::exchange(losses_, {});
  return consensus.start_asking(sent_);
}

Result<bool> StepAverages::hear(Consensus& consensus) {
  GW_ASSIGN(bool ends, consensus.heard());
  const int replicas = consensus.ranks(Scope::kData);
  const double share = 1.0 / replicas;
  for (const double sum : std::exchange(sent_, {})) {
    ends = ends || !std::isfinite(sum);
    late_.push_back(sum * share);
  }
  return ends;
}

}  // namespace gradwire
