// Logical clocks for the ranks of one process: whole programs then tell how long they would have
// taken on a modelled network, however long they took here.
//
// Messages are those of simulate.h: one starts when both its ends were posted and a port of each is
// free, keeps both ports for gap * alpha + n * beta and ends alpha + n * beta after its start; a
// rank that learns of the end of a batch goes on from its last message's. Reductions take no time;
// what else does is said with advance().
//
// Ports are given to messages as they meet in real time. So times do not depend on threads' timing
// where a rank has one message in each direction at a time, or one rank many that are alike; where
// messages of several ranks contend for ports, use simulate().
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/inproc/inproc_transport.h"
#include "gradwire/link_model.h"

namespace gradwire {

// Every function is thread-safe. Ranks are 0 .. size - 1.
class VirtualClock final : public MessageClock {
 public:
  // node_of: by rank; empty: no two ranks share a node.
  VirtualClock(int size, const LinkModel& links, std::vector<int> node_of = {});

  ExactTime now(int rank) const override;
  // The latest rank's.
  ExactTime latest() const;
  // The rank is busy with something else for so long.
  void advance(int rank, ExactTime duration);

  ExactTime carry(int from, int to, std::size_t bytes, ExactTime sent, ExactTime received) override;
  void reach(int rank, ExactTime time) override;

 private:
  struct Rank {
    ExactTime now;
    ExactTime out_free;
    ExactTime in_free;
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  const LinkModel links_;
  const std::vector<int> node_of_;
  mutable std::mutex mutex_;
  std::vector<Rank> ranks_;
};

inline VirtualClock::VirtualClock(int size, const LinkModel& links, std::vector<int> node_of)
    : links_(links), node_of_(std::move(node_of)), ranks_(static_cast<std::size_t>(size)) {}

inline ExactTime VirtualClock::now(int rank) const {
  const std::lock_guard lock(mutex_);
  return ranks_[static_cast<std::size_t>(rank)].now;
}

inline ExactTime VirtualClock::latest() const {
  const std::lock_guard lock(mutex_);
  ExactTime last;
  for (const Rank& rank : ranks_) last = std::max(last, rank.now);
  return last;
}

inline void VirtualClock::advance(int rank, ExactTime duration) {
  const std::lock_guard lock(mutex_);
  at(rank).now += duration;
}

inline ExactTime VirtualClock::carry(int from, int to, std::size_t bytes, ExactTime sent,
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

inline void VirtualClock::reach(int rank, ExactTime time) {
  const std::lock_guard lock(mutex_);
  at(rank).now = std::max(at(rank).now, time);
}

}  // namespace gradwire
