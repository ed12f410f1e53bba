#include "base/workers.h"

namespace gradwire {

Workers::Workers(int threads) {
  for (int worker = 1; worker < threads; ++worker) {
    threads_.emplace_back([this, worker] { help(worker); });
  }
}

Workers::~Workers() {
  if (mark_.in_child()) {
    abandon(threads_);
    abandon(begun_);
    abandon(left_);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begun_->notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::work(Loop& loop, int worker) {
  for (std::size_t i = loop.next++; i < loop.count; i = loop.next++) loop.task(i, worker);
}

void Workers::run(std::size_t count, const Task& task) {
  const bool alone = threads_.empty() || count < 2;
  if (alone || busy_.exchange(true)) {
    for (std::size_t i = 0; i < count; ++i) task(i, 0);
    return;
  }
  Loop loop{.task = task, .count = count};
  {
    const std::lock_guard lock(mutex_);
    loop_ = &loop;
    ++loops_;
  }
  begun_->notify_all();
  work(loop, 0);
  {
    std::unique_lock lock(mutex_);
    loop_ = nullptr;  // a thread that wakes up only now finds nothing left to do
    // Bounded by the tasks that helpers are in.
    left_->wait(lock, [&loop] { return loop.helpers == 0; });
  }
  busy_ = false;
}

void Workers::help(int worker) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    begun_->wait(lock, [&] { return stopping_ || (loop_ != nullptr && loops_ != seen); });
    if (stopping_) return;
    seen = loops_;
    Loop& loop = *loop_;
    ++loop.helpers;
    lock.unlock();
    work(loop, worker);
    lock.lock();
    if (--loop.helpers == 0) left_->notify_one();
  }
}

}  // namespace gradwire
