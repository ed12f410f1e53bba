#include "gradwire/work.h"

#include <utility>

#include "collectives/progress.h"
#include "collectives/work_state.h"

namespace gradwire {

Work::Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
Work::Work(Work&&) noexcept = default;

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    finish();
    state_ = std::move(other.state_);
  }
  return *this;
}

Work::~Work() { finish(); }

// A moved-from Work has nothing to end, and one without a state has ended well.
void Work::finish() {
  if (state_ == nullptr || state_->done()) return;
  cancel();
  if (const auto engine = state_->engine()) engine->wait(*state_, std::nullopt);
}

bool Work::done() const { return state_ == nullptr || state_->done(); }

Status Work::wait(std::optional<Deadline> deadline) {
  if (state_ == nullptr) return {};
  if (!state_->done()) {
    // Without an engine the operation has ended: the engine's last act.
    const auto engine = state_->engine();
    if (engine && engine->in_child()) return engine->status();
    if (engine && !engine->wait(*state_, deadline)) {
      return {Code::kTimedOut, "the wait's deadline passed; the operation goes on"};
    }
  }
  return state_->status();
}

Status Work::wait_on(const Stream& stream) {
  const bool by_device = state_ != nullptr && state_->hold() && !state_->done();
  return by_device ? state_->hold()(stream) : wait();
}

int Work::source() const { return state_ == nullptr ? -1 : state_->source(); }

void Work::cancel() {
  if (state_ == nullptr || state_->done()) return;
  if (const auto engine = state_->engine()) engine->cancel();
}

}  // namespace gradwire
