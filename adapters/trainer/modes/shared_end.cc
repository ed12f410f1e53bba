#include "adapters/trainer/modes/shared_end.h"

#include <algorithm>

namespace gradwire {

void SharedEnd::ask(int signal) {
  if (signal == 0) return;
  const std::lock_guard lock(mutex_);
  signal_ = signal;
}

void SharedEnd::decide() {
  if (decided_ || interruption_ == nullptr) return;
  if (signal_ == 0) signal_ = interruption_->asked();
  decided_ = signal_ != 0;
  if (decided_) end_ = std::min(end_, begun_ + slack_);
}

std::int64_t SharedEnd::grant(std::int64_t until) {
  const std::lock_guard lock(mutex_);
  decide();
  begun_ = std::max(begun_, std::min(until, end_));
  return end_;
}

std::int64_t SharedEnd::end() {
  const std::lock_guard lock(mutex_);
  return end_;
}

}  // namespace gradwire
