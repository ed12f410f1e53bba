// What a Work and the one who drives its operation share.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "gradwire/status.h"

namespace gradwire {

class ProgressEngine;

// `status` is written once, before `done` becomes true, and only read after that.
class WorkState {
 public:
  // An operation of that engine. The engine may go first: it ends its operations before.
  explicit WorkState(std::weak_ptr<ProgressEngine> engine) : engine_(std::move(engine)) {}

  bool done() const { return done_.load(std::memory_order_acquire); }
  // Requires done().
  const Status& status() const { return status_; }
  std::shared_ptr<ProgressEngine> engine() const { return engine_.lock(); }

  void finish(Status status) {
    status_ = std::move(status);
    done_.store(true, std::memory_order_release);
  }

 private:
  std::weak_ptr<ProgressEngine> engine_;
  Status status_;
  std::atomic<bool> done_{false};
};

}  // namespace gradwire
