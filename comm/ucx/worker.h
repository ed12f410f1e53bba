// Two workers of UCX, and how a thread sleeps on them.
//
// One worker carries data and one control messages, so that the former can be given up as a whole
// when UCX will not let go of the memory of a receive (the rest of a message from a stopped rank
// may still come), while heartbeats go on. Control messages take TCP where they may: all ranks of a
// host write into one queue of UCX's shared memory, and one that is killed or stopped between
// taking a place there and filling it keeps its reader from everything that comes later, of
// whichever rank.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/rendezvous/socket.h"
#include "comm/ucx/device_memory.h"
#include "comm/ucx/event_pause.h"
#include "comm/ucx/settings.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::ucx {

// Whether /dev/shm has too little room for the queues of a large host's ranks, or is not writable.
bool has_little_room();

// One thread at a time, but for wake().
class Worker {
 public:
  // kTimedOut where UCX's event thread does not stand still until then.
  static Result<std::unique_ptr<Worker>> make(const SettingsOptions& options = {},
                                              Deadline until = EventPause::patience());
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_context_h context() const { return context_; }  // of the data worker
  // What UCX was told, and the interfaces that it was given.
  const std::vector<Setting>& settings() const { return settings_; }
  const DeviceChoice& devices() const { return devices_; }
  // What becomes of memory of CUDA devices.
  const CudaRoute& cuda() const { return cuda_; }
  // Null after drop_data().
  ucp_worker_h data() const { return data_.handle; }
  ucp_worker_h control() const { return control_.handle; }
  Result<std::string> data_address() const { return address(data_); }
  Result<std::string> control_address() const { return address(control_); }

  // Ends every request of the data worker, without a callback. Its endpoints are to be closed.
  void drop_data();
  // A new one, after drop_data().
  Status renew_data(Deadline until = EventPause::patience());

  // Handles what has arrived, a bounded amount of it; false when there was nothing. Control
  // messages wait for every sixteenth call, for sleep(), or for progress_control().
  bool progress();
  bool progress_control();
  // Yields a little, then sleeps until something arrives, wake(), `until`, or 100 ms (wake-ups of
  // UCX have been known to get lost). With `sending`, at most a millisecond: room in a peer's
  // queue, for sends that wait for it, wakes nobody.
  Status sleep(Deadline until, bool sending);
  void wake() const { rendezvous::wake(wake_); }

 private:
  struct Half {
    ucp_worker_h handle = nullptr;
    int arrivals_fd = -1;  // belongs to the worker
  };
  Worker() = default;
  Status start_data(const SettingsOptions& options, Deadline until);
  Status try_data(const SettingsOptions& options, const EventPause& pause);
  Status start_control(SettingsOptions options, Deadline until);
  static Result<ucp_context_h> make_context(const ucp_config_t* config);
  static Result<Half> make_half(ucp_context_h context, const EventPause& pause);
  static Result<std::string> address(const Half& half);
  static bool drain(const Half& half);
  // False: something has come meanwhile.
  static Result<bool> arm(const Half& half);
  Status doze(Deadline until, int most_milliseconds);

  std::vector<Setting> settings_;
  DeviceChoice devices_;
  CudaRoute cuda_;
  ucp_context_h context_ = nullptr;
  ucp_context_h control_context_ = nullptr;  // null: control messages share context_
  Half data_;
  Half control_;
  int turns_ = 0;
  rendezvous::Fd wake_;
};

}  // namespace gradwire::ucx
