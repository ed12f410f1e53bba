#include "trainer/optimizers/step_lane.h"

#include <algorithm>
#include <utility>

namespace gradwire {

StepLane::~StepLane() {
  stop();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  released_.notify_one();
  thread_.join();
}

void StepLane::begin(std::size_t elems, std::size_t chunk, Part part) {
  const std::lock_guard lock(mutex_);
  part_ = std::move(part);
  chunk_ = chunk;
  stepped_ = may_from_ = elems;
  status_ = Status();
}

void StepLane::release(std::size_t first) {
  {
    const std::lock_guard lock(mutex_);
    may_from_ = std::min(may_from_, first);
    if (!may_step()) return;
  }
  released_.notify_one();
}

Status StepLane::finish() {
  release(0);
  std::unique_lock lock(mutex_);
  // As long as the parts take: they are this process' own work and wait for nobody.
  rests_.wait(lock, [this] { return stepped_ == 0 && !busy_; });
  return status_;
}

void StepLane::stop() {
  std::unique_lock lock(mutex_);
  stepped_ = may_from_ = 0;
  rests_.wait(lock, [this] { return !busy_; });
}

// With the mutex held: there is a chunk, or the rest of everything.
bool StepLane::may_step() const {
  return stepped_ > 0 && (may_from_ == 0 || stepped_ - may_from_ >= chunk_);
}

void StepLane::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    released_.wait(lock, [this] { return ending_ || may_step(); });
    if (ending_) return;
    const std::size_t count = std::min(chunk_, stepped_);
    const std::size_t first = stepped_ - count;
    busy_ = true;
    lock.unlock();
    Status done = part_(first, count);
    lock.lock();
    busy_ = false;
    // stop() may have been called meanwhile.
    stepped_ = done.ok() ? std::min(stepped_, first) : 0;
    if (!done.ok()) status_ = std::move(done);
    if (stepped_ == 0) rests_.notify_one();
  }
}

}  // namespace gradwire
