// Threads for what users chain to an operation: as many as are blocked at once, and one more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace gradwire::torch_backend {

// A callback may block, for instance in another operation's wait, so no task ever waits for another
// one's thread: a task that finds no idle thread gets a new one. Idle threads end after some
// seconds. The threads own the queue with the pool, so that a pool may go before its last task.
class Pool {
 public:
  Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // From any thread; never blocks for long. The task must not throw.
  void submit(std::function<void()> task);
  // Waits until nothing is queued or running, at most `limit`. Whether that came.
  bool drain(std::chrono::milliseconds limit);
  // Whether the calling thread is one of any pool's.
  static bool inside();

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable arrived;
    std::condition_variable quiet;
    std::deque<std::function<void()>> tasks;
    int idle = 0;
    int running = 0;
  };
  static void serve(const std::shared_ptr<Queue>& queue);

  std::shared_ptr<Queue> queue_;
};

}  // namespace gradwire::torch_backend
