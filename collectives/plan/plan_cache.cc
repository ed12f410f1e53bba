#include "collectives/plan/plan_cache.h"

#include <utility>

namespace gradwire {
namespace {

std::size_t steps_in(const Schedule& schedule) {
  std::size_t steps = 1;
  for (const Round& round : schedule.rounds) steps += 1 + round.size();
  for (const Schedule& stretch : schedule.stretches) steps += steps_in(stretch);
  return steps;
}

}  // namespace

Result<MessagePlan> PlanCache::of(PlanKey key, const Make& make) {
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  GW_ASSIGN(MessagePlan plan, make(key));
  const std::size_t steps = steps_in(plan.layout->schedule());
  if (steps_ + steps > kMostSteps) clear();
  if (steps > kMostSteps) return plan;
  steps_ += steps;
  key.algorithm = key.algorithm == "auto" ? "auto" : plan.algorithm;  // the caller's need not last
  plans_.emplace(std::move(key), plan);
  return plan;
}

void PlanCache::clear() {
  plans_.clear();
  steps_ = 0;
}

}  // namespace gradwire
