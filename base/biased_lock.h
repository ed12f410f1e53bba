// A lock for what one thread does many times and others seldom do. The thread that has the bias
// takes it without a locked instruction, which would wait until all it wrote is with the other
// cores; the others pay for that with a system call (membarrier, Linux 4.14). Where that is
// missing, it is a mutex.
//
// After: Dice, Huang, Yang, "Quickly reacquirable locks" (2001), with the barrier on the side that
// revokes.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace gradwire {

// As std::mutex, so that std::lock_guard and std::unique_lock take it. The bias is that of the
// first thread to take it, until another has taken it often without that one coming between.
class BiasedLock {
 public:
  BiasedLock();
  BiasedLock(const BiasedLock&) = delete;
  BiasedLock& operator=(const BiasedLock&) = delete;

  void lock() { take(true); }
  // As lock(), by a thread that is not to have the bias for that, however often it comes: it would
  // take it from one that has paused.
  void lock_as_guest() { take(false); }
  void unlock() {
    if (Bias* const bias = held_; bias != nullptr) {
      held_ = nullptr;
      bias->inside.store(false, std::memory_order_release);
    } else {
      wanted_.store(false, std::memory_order_release);
      mutex_.unlock();
    }
  }

  // Whether the thread with the bias was inside just now. Any thread; a hint.
  bool is_owner_inside() const {
    const Bias* const bias = bias_.load(std::memory_order_acquire);
    return bias != nullptr && bias->inside.load(std::memory_order_relaxed);
  }

 private:
  struct Bias {
    explicit Bias(const void* its) : thread(its) {}

    const void* thread;
    std::atomic<bool> inside{false};
  };

  static const void* this_thread() {
    static thread_local const char here = 0;
    return &here;
  }
  void take(bool counts) {
    Bias* const bias = bias_.load(std::memory_order_acquire);
    if (bias != nullptr && bias->thread == this_thread()) {
      bias->inside.store(true, std::memory_order_relaxed);
      // The barrier between this store and these loads is the others' system call.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (!wanted_.load(std::memory_order_acquire) &&
          bias_.load(std::memory_order_acquire) == bias) {
        held_ = bias;
        in_a_row_ = 0;  // its owner is there
        return;
      }
      bias->inside.store(false, std::memory_order_release);
    }
    lock_slowly(counts);
  }
  void lock_slowly(bool counts);
  void rebias();

  std::atomic<Bias*> bias_{nullptr};
  std::atomic<bool> wanted_{false};  // by a thread without the bias, which has the mutex
  Bias* held_ = nullptr;             // of the holder: by its bias
  std::mutex mutex_;
  // Of its holder.
  bool can_bias_;
  const void* last_ = nullptr;
  int in_a_row_ = 0;
  std::vector<std::unique_ptr<Bias>> biases_;  // a thread may still look at an older one
};

}  // namespace gradwire
