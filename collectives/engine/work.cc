#include "gradwire/work.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "collectives/engine/progress.h"
#include "collectives/engine/work_state.h"

namespace gradwire {

// An engine whose last owner has let it go ends its operations before it is gone, on that owner's
// thread; nobody else can ask it for anything by then.
bool WorkState::wait(const std::optional<Deadline>& until) const {
  if (in_child()) return done();
  if (const auto quick = quick_.lock(); quick && quick->wait_briefly(*this, until)) {
    return true;
  }
  if (const auto engine = engine_.lock()) return engine->wait(*this, until);
  constexpr std::chrono::seconds kItTakesLess{30};
  const Deadline most = std::chrono::steady_clock::now() + kItTakesLess;
  const Deadline end = std::min(until.value_or(most), most);
  while (!done() && !in_child() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return done();
}

void WorkState::look_at_device() const {
  constexpr std::chrono::milliseconds kMost{50};  // where its thread gets no processor
  (void)wait(std::chrono::steady_clock::now() + kMost);
}

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    finish();
    state_ = std::move(other.state_);
  }
  return *this;
}

// A moved-from Work has nothing to end, and one without a state has ended well.
void Work::finish() {
  if (state_ == nullptr || state_->done()) return;
  cancel();
  (void)state_->wait(std::nullopt);
}

bool Work::done() const { return state_ == nullptr || state_->look(); }

Status Work::wait_for_end(const std::optional<Deadline>& deadline) {
  if (state_->done() || state_->wait(deadline)) return state_->status();
  if (state_->in_child()) return ProgressEngine::not_in_children();
  return {Code::kTimedOut, "the wait's deadline passed; the operation continues"};
}

Status Work::wait_on(const Stream& stream) {
  const bool by_device =
      state_ != nullptr && state_->hold() && !state_->done() && !state_->in_child();
  return by_device ? state_->hold()(stream) : wait();
}

int Work::source() const { return state_ == nullptr ? -1 : state_->source(); }

void Work::cancel() {
  if (state_ == nullptr || state_->done()) return;
  if (const auto engine = state_->engine()) engine->cancel();
}

}  // namespace gradwire
