// What a Work and the one who drives its operation share.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "gradwire/status.h"

namespace gradwire {

class ProgressEngine;

// Of one operation or of several that are done together. The status is that of the first that
// failed; it is written before `done` becomes true, and only read after that.
class WorkState {
 public:
  // `operations` of that engine. The engine may go first: it ends its operations before.
  explicit WorkState(std::weak_ptr<ProgressEngine> engine, std::size_t operations = 1)
      : engine_(std::move(engine)), open_(operations), done_(operations == 0) {}

  bool done() const { return done_.load(std::memory_order_acquire); }
  // Requires done().
  const Status& status() const { return status_; }
  std::shared_ptr<ProgressEngine> engine() const { return engine_.lock(); }

  // One operation has ended. Once for each; any thread.
  void finish(Status status) {
    if (!status.ok() && !failed_.exchange(true)) status_ = std::move(status);
    if (open_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      done_.store(true, std::memory_order_release);
    }
  }

 private:
  std::weak_ptr<ProgressEngine> engine_;
  Status status_;
  std::atomic<std::size_t> open_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> done_;
};

}  // namespace gradwire
