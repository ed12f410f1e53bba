// What an Engine has to do with the device that holds its gradients.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "aggregate/engine.h"
#include "base/text.h"

namespace gradwire {
namespace {

// After a failure, which is to be known within the operations' deadline + 1 s.
constexpr double kSettleSeconds = 0.2;
// For what nobody waits for any more.
constexpr double kAbandonSeconds = 600;

}  // namespace

// Errors are for who waits.
bool Engine::final_on_device(std::size_t bucket) const {
  for (const int index : buckets_[bucket].plan.parameters) {
    const Parameter& parameter = parameters_[static_cast<std::size_t>(index)];
    if (parameter.ready == nullptr) return true;
    const Result<bool> passed = parameter.ready->passed();
    if (!passed.has_value()) return true;
    if (!passed.value()) return false;
  }
  return true;
}

// Until the gradients of the bucket, which have been handed over, are final.
Status Engine::await_device(std::size_t bucket) {
  const Deadline until = deadline_in(context_.lane_seconds);
  for (const int index : buckets_[bucket].plan.parameters) {
    const Parameter& parameter = parameters_[static_cast<std::size_t>(index)];
    if (parameter.ready == nullptr) return {};
    while (true) {
      const auto passed = await(*parameter.ready, std::min(until, deadline_in(kPatience)));
      const std::string who = format("step %lld, bucket %zu, gradient '%s'",
                                     static_cast<long long>(step_), bucket, parameter.name.c_str());
      if (!passed.has_value()) return passed.error().with_context(who);
      if (passed.value()) break;
      if (std::chrono::steady_clock::now() >= until) {
        return {Code::kTimedOut,
                who + format(": CUDA device %d did not complete it within %.1f s of ready()",
                             context_.stream().device.ordinal, context_.lane_seconds)};
      }
      const std::lock_guard lock(mutex_);
      if (stopping_) return cancelled();
    }
  }
  return {};
}

std::vector<NamedTensor> Engine::state() {
  auto image = StateImage::take(context_, live_state());
  if (!image.has_value()) {
    fail(image.error());
    return {};
  }
  image_ = std::move(image).value();
  return image_.tensors();
}

Status Engine::change_state(const StateChange& change) {
  return this->change(live_state(), change);
}

Status Engine::change(std::vector<NamedTensor> live, const StateChange& change) {
  GW_ASSIGN(const StateImage image, StateImage::take(context_, std::move(live)));
  GW_TRY(change(image.tensors()));
  const Status back = image.put_back(context_);
  if (!back.ok()) fail(back);  // some of it may be there
  return back;
}

// What is enqueued may read and write gradients. `status`, with a word more where it goes on.
Status Engine::leave_device(Status status) const {
  if (context_.lane == nullptr) return status;
  const Status left = context_.lane->finish(kSettleSeconds);
  if (left.code() != Code::kTimedOut) return status;  // work that has failed has ended
  return {status.code(), std::string(status.message()) +
                             "; gradients are not to be freed yet: " + std::string(left.message())};
}

// The device may still write there, to whatever came to lie there next: it is freed when the device
// is through, and otherwise goes with the process.
void Engine::give_up_memory() {
  std::thread([lane = context_.lane, buckets = std::move(buckets_)]() mutable {
    if (lane->finish(kAbandonSeconds).ok()) return;
    static_cast<void>(new std::vector<Bucket>(std::move(buckets)));
  }).detach();
}

}  // namespace gradwire
