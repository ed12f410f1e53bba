#include "device/host_copy.h"

#include "device/cuda/have_cuda.h"
#include "device/cuda/memory_calls.h"
#include "device/ops.h"

namespace gradwire {

Status wait_for(const Stream& stream) {
  if constexpr (kHaveCuda) {
    if (stream.device.space == MemorySpace::kCuda) return cuda::synchronize(stream);
  }
  return {};
}

Result<HostCopy> HostCopy::of(ConstTensorView tensor) {
  HostCopy made;
  const Device device = tensor.device();
  if (device.space != MemorySpace::kCuda) {
    made.borrowed_ = tensor.bytes();
    return made;
  }
  made.there_.resize(tensor.bytes().size());
  // A copy to memory that is not pinned waits by itself, and as long as it takes.
  GW_TRY(wait_for({device, nullptr}));
  GW_TRY(copy_bytes(tensor.bytes(), device, made.there_, Device{}, {device, nullptr}));
  GW_TRY(wait_for({device, nullptr}));
  return made;
}

Status write_from_host(ConstByteSpan from, TensorView to) {
  GW_TRY(wait_for({to.device(), nullptr}));
  GW_TRY(copy_bytes(from, Device{}, to.bytes(), to.device(), {to.device(), nullptr}));
  return wait_for({to.device(), nullptr});
}

}  // namespace gradwire
