#include "trainer/cuda/make_kernels.h"

#include "device/cuda/have_cuda.h"
#include "trainer/cuda/cuda_kernels.h"

namespace gradwire {
namespace {

Status no_device_kernels() {
  return {Code::kUnsupported, "this build trains on the host only (expected one with CUDA)"};
}

}  // namespace

Result<std::unique_ptr<LayerKernels<float>>> make_layer_kernels(const Stream& stream) {
  if (stream.device.space != MemorySpace::kCuda) return std::unique_ptr<LayerKernels<float>>();
  if constexpr (kHaveCuda) return cuda::make_layers(stream);
  return no_device_kernels();
}

Result<std::unique_ptr<StepKernels>> make_step_kernels(const Stream& stream) {
  if (stream.device.space != MemorySpace::kCuda) return std::unique_ptr<StepKernels>();
  if constexpr (kHaveCuda) return cuda::make_steps(stream);
  return no_device_kernels();
}

Result<std::unique_ptr<StoredKernels>> make_stored_kernels(Precision precision,
                                                           const Stream& stream) {
  if (stream.device.space != MemorySpace::kCuda) return std::unique_ptr<StoredKernels>();
  if constexpr (kHaveCuda) return cuda::make_stored(precision, stream);
  return no_device_kernels();
}

}  // namespace gradwire
