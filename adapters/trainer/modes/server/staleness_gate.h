// Bounded staleness: nobody starts a step that is more than s ahead of the slowest worker's.
//
// A worker's clock is the number of its steps that the server has applied. A pull at clock c waits
// until c - (the slowest clock) <= s. s = 0 is lockstep, no bound is plain asynchrony.
// Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
// server", NeurIPS 2013.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Every function is thread-safe.
class StalenessGate {
 public:
  // bound: s >= 0, in steps; nullopt: none.
  StalenessGate(int workers, std::optional<std::int64_t> bound);

  // So many more steps of `worker` are applied.
  void advance(int worker, std::int64_t steps);
  // `worker` has done all its steps: nobody waits for it any more.
  void leave(int worker);
  // Blocks until `worker` may go on; returns how many steps it is ahead of the slowest. kTimedOut
  // names whom it waited for, or what stop() said.
  Result<std::int64_t> enter(int worker, Deadline deadline);
  // Ends all waiting, now and later, with this error.
  void stop(const Status& error);

 private:
  int slowest() const;  // -1: all have left

  const std::optional<std::int64_t> bound_;
  std::mutex mutex_;
  std::condition_variable moved_;
  std::vector<std::optional<std::int64_t>> clocks_;  // nullopt: has left
  Status stopped_;
};

}  // namespace gradwire
