#include "comm/ucx/event_pause.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/text.h"
#include "comm/ucx/settings.h"

namespace gradwire::ucx {
namespace {

// UCX starts its thread for the first event that it is to watch, and aborts where it gets none. The
// C library keeps the stack of a thread that has ended for the next one.
Status look_for_a_thread() {
  pthread_t thread{};
  const auto nothing = [](void*) -> void* { return nullptr; };
  const int error = ::pthread_create(&thread, nullptr, nothing, nullptr);
  if (error != 0) {
    return {Code::kOutOfMemory, format("ucx: the system refuses a thread for its events (%s); "
                                       "raise the limit of memory or processes",
                                       std::strerror(error))};
  }
  (void)::pthread_join(thread, nullptr);
  return {};
}

}  // namespace

Result<std::unique_ptr<EventPause>> EventPause::begin(Deadline until) {
  const auto begun = std::chrono::steady_clock::now();
  GW_TRY(look_for_a_thread());
  std::unique_ptr<EventPause> pause(new EventPause);
  pause->fd_ = rendezvous::Fd(eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!pause->fd_.valid())
    return Status(Code::kInternal, format("ucx: eventfd: %s", std::strerror(errno)));
  const ucs_status_t status =
      ucs_async_set_event_handler(UCS_ASYNC_MODE_THREAD_MUTEX, pause->fd_.get(),
                                  UCS_EVENT_SET_EVREAD, on_event, pause.get(), nullptr);
  if (status != UCS_OK) return error("its event thread", status);
  pause->watched_ = true;
  std::unique_lock lock(pause->mutex_);
  if (pause->changed_.wait_until(lock, until, [&] { return pause->reached_; })) return pause;
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begun;
  return Status(Code::kTimedOut,
                format("ucx: its event thread did not answer within %.1f s", waited.count()));
}

EventPause::~EventPause() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  constexpr int kUntilItHasReturned = 1;
  if (watched_) (void)ucs_async_remove_handler(fd_.get(), kUntilItHasReturned);
}

void EventPause::on_event(int, ucs_event_set_types_t, void* self) {
  auto& pause = *static_cast<EventPause*>(self);
  std::uint64_t count = 0;
  (void)!::read(pause.fd_.get(), &count, sizeof count);
  std::unique_lock lock(pause.mutex_);
  pause.reached_ = true;
  pause.changed_.notify_all();
  pause.changed_.wait(lock, [&] { return pause.over_; });
}

}  // namespace gradwire::ucx
