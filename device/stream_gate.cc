#include "device/stream_gate.h"

#include "device/cuda/cuda_gate.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {

Result<std::unique_ptr<StreamGate>> StreamGate::close(const Stream& stream) {
  if constexpr (kHaveCuda) {
    if (stream.device.space == MemorySpace::kCuda) return cuda::close_gate(stream);
  }
  return Status(Code::kUnsupported, "a gate on a stream of the host (expected a CUDA stream)");
}

}  // namespace gradwire
