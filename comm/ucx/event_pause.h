// Keeps UCX's event thread from its events for a moment.
//
// UCX handles connections in a thread of its own, from the moment when a worker that is being made
// listens. 1.13.1 aborts (ucp_worker.c:691) when somebody has connected and said something before
// ucp_worker_create() is through with that interface. What comes during a pause waits in the
// kernel, and is handled when the worker is there.
#pragma once

#include <ucs/async/async_fwd.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "comm/rendezvous/socket.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::ucx {

// The pause is that of the whole process: all of UCX's events are handled by one thread. Pauses of
// several threads come one after another.
class EventPause {
 public:
  // Returns when the thread stands still. Errors: kTimedOut when it did not until then,
  // kOutOfMemory where there can be no thread, kInternal.
  static Result<std::unique_ptr<EventPause>> begin(Deadline until);
  // For callers without a deadline: other transports of this process may make their workers first.
  static Deadline patience() { return deadline_in(60); }
  ~EventPause();
  EventPause(const EventPause&) = delete;
  EventPause& operator=(const EventPause&) = delete;

 private:
  EventPause() = default;
  static void on_event(int id, ucs_event_set_types_t events, void* self);

  rendezvous::Fd fd_;  // an event for the thread, whose handling takes as long as the pause
  bool watched_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  bool over_ = false;
};

}  // namespace gradwire::ucx
