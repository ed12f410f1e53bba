// Memory of CUDA devices under UCX: whether it is handed to UCX, and what this rank copies itself.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/ucx/settings.h"
#include "device/copy_lane.h"
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

// Copies between any two places, done when the call returns, beside the device's other work.
class DeviceCopies {
 public:
  Status copy(ConstByteSpan from, gradwire::Device from_device, ByteSpan to,
              gradwire::Device to_device);

 private:
  struct Lane {
    gradwire::Device device;
    std::unique_ptr<CopyLane> copies;
  };
  std::vector<Lane> lanes_;
};

}  // namespace gradwire::ucx
