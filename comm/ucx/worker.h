// One UCX context with one worker, and how a thread sleeps on it.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::ucx {

// One thread at a time, but for wake().
class Worker {
 public:
  static Result<std::unique_ptr<Worker>> make();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_worker_h handle() const { return worker_; }
  Result<std::string> address() const;

  // Handles what has arrived, a bounded amount of it; false when there was nothing.
  bool progress();
  // Yields a little, then sleeps until something arrives, wake(), `until`, or 100 ms (wake-ups of
  // UCX have been known to get lost). With `sending`, at most a millisecond: room in a peer's
  // queue, for sends that wait for it, wakes nobody.
  Status sleep(Deadline until, bool sending);
  void wake() const;

 private:
  Worker() = default;
  Status start();
  Status doze(Deadline until, int most_milliseconds);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int arrivals_fd_ = -1;  // belongs to the worker
  int wake_fd_ = -1;
};

}  // namespace gradwire::ucx
