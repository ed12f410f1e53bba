#include "adapters/trainer/modes/server/staleness_gate.h"

#include "base/text.h"

namespace gradwire {

StalenessGate::StalenessGate(int workers, std::optional<std::int64_t> bound)
    : bound_(bound), clocks_(static_cast<std::size_t>(workers), 0) {}

int StalenessGate::slowest() const {
  int found = -1;
  for (std::size_t w = 0; w < clocks_.size(); ++w) {
    if (!clocks_[w]) continue;
    if (found < 0 || *clocks_[w] < *clocks_[static_cast<std::size_t>(found)]) {
      found = static_cast<int>(w);
    }
  }
  return found;
}

void StalenessGate::advance(int worker, std::int64_t steps) {
  const std::lock_guard lock(mutex_);
  *clocks_[static_cast<std::size_t>(worker)] += steps;
  moved_.notify_all();
}

void StalenessGate::leave(int worker) {
  const std::lock_guard lock(mutex_);
  clocks_[static_cast<std::size_t>(worker)].reset();
  moved_.notify_all();
}

void StalenessGate::stop(const Status& error) {
  const std::lock_guard lock(mutex_);
  if (stopped_.ok()) stopped_ = error;
  moved_.notify_all();
}

Result<std::int64_t> StalenessGate::enter(int worker, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto lead = [&] {
    return *clocks_[static_cast<std::size_t>(worker)] -
           *clocks_[static_cast<std::size_t>(slowest())];
  };
  const bool moved = moved_.wait_until(
      lock, deadline, [&] { return !stopped_.ok() || !bound_ || lead() <= *bound_; });
  GW_TRY(stopped_);
  if (moved) return lead();
  return Status(
      Code::kTimedOut,
      format("staleness %lld: worker %d, %lld steps ahead, timed out waiting for worker %d",
             static_cast<long long>(*bound_), worker, static_cast<long long>(lead()), slowest()));
}

}  // namespace gradwire
