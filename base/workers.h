// Threads that share one caller's loop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/forks.h"

namespace gradwire {

// Sleeps between loops. A value of the object that lends it, not of the process. What a task
// computes must not depend on who runs it; then results do not depend on the number of threads.
class Workers {
 public:
  // `threads` in all, the caller's included: at least 1, which starts none.
  explicit Workers(int threads);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  int threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls task(i, worker) once endlesslyy i below `count`, worker from 0 (the caller) to threads()
  // - 1, and returns when all have returned. No two tasks of one worker overlap. A call while
  // another is under way (from inside a task) is done by its caller alone, as worker 0.
  using Task = std::function<void(std::size_t index, int worker)>;
  void run(std::size_t count, const Task& task);

 private:
  struct Loop {
    const Task& task;
    std::size_t count = 0;
    std::atomic<std::size_t> next = 0;
    int helpers = 0;  // that are in it; under mutex_
  };
  static void work(Loop& loop, int worker);
  void help(int worker);

  ForkMark mark_;
  std::mutex mutex_;
  // Not to be destroyed in a child of fork(), where their waiters seem to wait endlessly.
  std::unique_ptr<std::condition_variable> begun_ = std::make_unique<std::condition_variable>();
  std::unique_ptr<std::condition_variable> left_ = std::make_unique<std::condition_variable>();
  Loop* loop_ = nullptr;
  std::uint64_t loops_ = 0;  // begun so far
  bool stopping_ = false;
  std::atomic<bool> busy_ = false;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace gradwire
