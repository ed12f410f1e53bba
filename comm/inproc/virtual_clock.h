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

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/exact_time.h"
#include "gradwire/link_model.h"

namespace gradwire {

// Every function is thread-safe. Ranks are 0 .. size - 1.
class VirtualClock {
 public:
  // node_of: by rank; empty: no two ranks share a node.
  VirtualClock(int size, const LinkModel& links, std::vector<int> node_of = {});

  ExactTime now(int rank) const;
  // The latest rank's.
  ExactTime latest() const;
  // The rank is busy with something else for so long.
  void advance(int rank, ExactTime duration);

  // For the transport: a message whose ends were posted at these times; returns its end.
  ExactTime carry(int from, int to, std::size_t bytes, ExactTime sent, ExactTime received);
  // The rank has learnt of something that ended then.
  void reach(int rank, ExactTime time);

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

}  // namespace gradwire
