#include "comm/inproc/virtual_clock.h"

#include <algorithm>
#include <utility>

namespace gradwire {

VirtualClock::VirtualClock(int size, const LinkModel& links, std::vector<int> node_of)
    : links_(links), node_of_(std::move(node_of)), ranks_(static_cast<std::size_t>(size)) {}

ExactTime VirtualClock::now(int rank) const {
  const std::lock_guard lock(mutex_);
  return ranks_[static_cast<std::size_t>(rank)].now;
}

ExactTime VirtualClock::latest() const {
  const std::lock_guard lock(mutex_);
  ExactTime last;
  for (const Rank& rank : ranks_) last = std::max(last, rank.now);
  return last;
}

void VirtualClock::advance(int rank, ExactTime duration) {
  const std::lock_guard lock(mutex_);
  at(rank).now += duration;
}

ExactTime VirtualClock::carry(int from, int to, std::size_t bytes, ExactTime sent,
                              ExactTime received) {
  const std::lock_guard lock(mutex_);
  const bool inside = !node_of_.empty() && node_of_[static_cast<std::size_t>(from)] ==
                                               node_of_[static_cast<std::size_t>(to)];
  const double alpha = inside ? links_.alpha_intra : links_.alpha;
  const double beta = inside ? links_.beta_intra : links_.beta;
  const ExactTime start = std::max({sent, received, at(from).out_free, at(to).in_free});
  const ExactTime moved = start + static_cast<std::int64_t>(bytes) * ExactTime::from_seconds(beta);
  at(from).out_free = at(to).in_free = moved + ExactTime::from_seconds(links_.gap * alpha);
  return moved + ExactTime::from_seconds(alpha);
}

void VirtualClock::reach(int rank, ExactTime time) {
  const std::lock_guard lock(mutex_);
  at(rank).now = std::max(at(rank).now, time);
}

}  // namespace gradwire
