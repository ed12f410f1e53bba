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
  return of(tensor, {tensor.device(), nullptr});
}

Result<HostCopy> HostCopy::of(ConstTensorView tensor, const Stream& stream) {
  HostCopy made;
  const Device device = tensor.device();
  if (device.space != MemorySpace::kCuda) {
    made.borrowed_ = tensor.bytes();
    return made;
  }
  made.there_.resize(tensor.bytes().size());
  // A copy to memory that is not pinned waits by itself, and as long as it takes.
  GW_TRY(wait_for(stream));
  GW_TRY(copy_bytes(tensor.bytes(), device, made.there_, Device{}, stream));
  GW_TRY(wait_for(stream));
  return made;
}

Status write_from_host(ConstByteSpan from, TensorView to) {
  return write_from_host(from, to, {to.device(), nullptr});
}

Status write_from_host(ConstByteSpan from, TensorView to, const Stream& stream) {
  GW_TRY(wait_for(stream));
  GW_TRY(copy_bytes(from, Device{}, to.bytes(), to.device(), stream));
  return wait_for(stream);
}

}  // namespace gradwire
