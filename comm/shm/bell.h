// A rank that waits for what other ranks of its host write sleeps here; they ring. Costs nothing
// but a look while nobody sleeps.
#pragma once

#include <atomic>
#include <cstdint>

#include "gradwire/tensor.h"

namespace gradwire::shm {

// In shared memory; zeroed memory is a valid Bell. Any threads of its rank sleep, any may ring.
//
//   sleeper: seen = lie_down(); look again for what it waits for; sleep(seen, until); get_up()
//   others:  write what it waits for; ring_if_asleep()
//
// Both sides put a full fence between their write and their look, so either the sleeper sees what
// was written or the writer sees the sleeper.
class Bell {
 public:
  std::uint32_t lie_down() {
    const std::uint32_t seen = rings_.load(std::memory_order_relaxed);
    asleep_.fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return seen;
  }
  // Returns when somebody has rung since `seen`, or at `until`, or for no reason.
  void sleep(std::uint32_t seen, Deadline until);
  void get_up() { asleep_.fetch_sub(1, std::memory_order_relaxed); }
  bool anybody_asleep() const { return asleep_.load(std::memory_order_relaxed) != 0; }

  // Requires a full fence between the write and this.
  void ring_if_asleep() {
    if (anybody_asleep()) ring();
  }
  void ring();

 private:
  alignas(128) std::atomic<std::uint32_t> asleep_;  // how many; a line that changes only then
  std::atomic<std::uint32_t> rings_;
};
static_assert(sizeof(Bell) == 128 && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace gradwire::shm
