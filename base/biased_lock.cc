#include "base/biased_lock.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>

namespace gradwire {
namespace {

// A thread has the bias after so many turns in a row; so many threads may have it by turns.
constexpr int kTurnsForBias = 64;
constexpr std::size_t kMostBiases = 16;

#if defined(__SANITIZE_THREAD__)
constexpr bool kMayBias = false;  // the sanitizer does not know that barrier
#else
constexpr bool kMayBias = true;
#endif

bool make_barriers_possible() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

// A full barrier in every thread of the process that runs now.
bool barrier_everywhere() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

}  // namespace

BiasedLock::BiasedLock() : can_bias_(kMayBias && make_barriers_possible()) {}

void BiasedLock::lock_slowly(bool counts) {
  mutex_.lock();
  const Bias* const bias = bias_.load(std::memory_order_relaxed);
  if (bias != nullptr && bias->thread != this_thread()) {
    wanted_.store(true, std::memory_order_seq_cst);
    // A child of fork() is not registered; its parent's threads are not there either.
    if (!barrier_everywhere() && make_barriers_possible()) (void)barrier_everywhere();
    constexpr int kLooks = 1000;
    for (int look = 0; bias->inside.load(std::memory_order_acquire); ++look) {
      if (look >= kLooks) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  if (can_bias_ && counts) rebias();
}

// Requires the lock, and that no thread is inside by its bias.
void BiasedLock::rebias() {
  in_a_row_ = last_ == this_thread() ? in_a_row_ + 1 : 0;
  last_ = this_thread();
  const Bias* const bias = bias_.load(std::memory_order_relaxed);
  if (bias != nullptr && (bias->thread == last_ || in_a_row_ < kTurnsForBias)) return;
  // A thread's again, when it had the bias before: it may go back and forth without end.
  auto its = std::ranges::find(biases_, last_, [](const auto& each) { return each->thread; });
  if (its == biases_.end()) {
    if (biases_.size() >= kMostBiases) return;
    its = biases_.insert(its, std::make_unique<Bias>(last_));
  }
  bias_.store(its->get(), std::memory_order_release);
}

}  // namespace gradwire
