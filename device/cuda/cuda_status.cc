#include "device/cuda/cuda_status.h"

#include "base/text.h"

namespace gradwire::cuda {
namespace {

Code code_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return Code::kOutOfMemory;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice: return Code::kUnsupported;
    case cudaErrorInvalidDevice: return Code::kInvalidArgument;
    default: return Code::kInternal;
  }
}

}  // namespace

Status status_of(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  return {code_of(error),
          format("%s (%s) from %s", cudaGetErrorName(error), cudaGetErrorString(error), call)};
}

}  // namespace gradwire::cuda
