// One UCX context with one worker, and how a thread sleeps on it.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/ucx/settings.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::ucx {

// One thread at a time, but for wake().
class Worker {
 public:
  static Result<std::unique_ptr<Worker>> make(const SettingsOptions& options = {});
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_worker_h handle() const { return worker_; }
  ucp_context_h context() const { return context_; }
  // What UCX was told, and the interfaces that it was given.
  const std::vector<Setting>& settings() const { return settings_; }
  const DeviceChoice& devices() const { return devices_; }
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
  Status start(const SettingsOptions& options);
  Status doze(Deadline until, int most_milliseconds);

  std::vector<Setting> settings_;
  DeviceChoice devices_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int arrivals_fd_ = -1;  // belongs to the worker
  int wake_fd_ = -1;
};

}  // namespace gradwire::ucx
