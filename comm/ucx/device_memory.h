// Memory of CUDA devices under UCX: whether it is handed to UCX, and what this rank copies itself.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/ucx/settings.h"
#include "device/copy_lane.h"
#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::ucx {

// "host", "cuda", ...: what such a context says it can send and receive; empty where it does not
// say.
std::vector<std::string> memory_types(ucp_context_h context);

struct CudaRoute {
  bool direct = false;  // UCX gets the device's memory; else callers stage it
  std::string why;
};
// By what the context says, and by how messages go: where large ones are kept from rendezvous, UCX
// copies a device's memory fragment by fragment, one after another.
CudaRoute cuda_route(ucp_context_h context, const std::vector<Setting>& settings);

// What UCX is told of a transfer's memory.
ucs_memory_type_t memory_type(gradwire::Device device);

// A copy on its way: a device's work, or over already. Of memory of the host a device sees pinned
// memory alone, which it may go on using when nobody waits any more.
class DeviceCopy {
 public:
  // Whether it is over, `to` being written. An error of the device ends it; one that cannot be
  // followed is never over.
  Result<bool> passed();
  // Why it cannot be followed.
  const Status& adrift() const { return adrift_; }

 private:
  friend class DeviceCopies;
  std::unique_ptr<DevicePoint> point_;  // null: over
  Buffer here_;                         // what stands for memory of the host
  ByteSpan to_host_;                    // gets what is there
  Status adrift_;
};

// Copies between any two places, beside a device's other work. Used by one thread.
class DeviceCopies {
 public:
  // `from` and `to` are lent until the copy is over, or given up.
  Result<DeviceCopy> begin(ConstByteSpan from, gradwire::Device from_device, ByteSpan to,
                           gradwire::Device to_device);
  // Keeps its memory for the next one.
  void take_back(DeviceCopy over);
  // Of one that is not over: what the device may still use of the host stays.
  static void give_up(DeviceCopy copy);

 private:
  Result<const CopyLane*> lane_of(gradwire::Device device);
  Result<Buffer> pinned(std::size_t bytes);

  struct Lane {
    gradwire::Device device;
    std::unique_ptr<CopyLane> copies;
  };
  std::vector<Lane> lanes_;
  std::vector<Buffer> spare_;  // pinned
};

}  // namespace gradwire::ucx
