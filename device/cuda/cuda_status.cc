#include "device/cuda/cuda_status.h"

#include "base/text.h"
#include "device/cuda/launch.h"

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

Status too_many_blocks(const char* name, std::int64_t blocks) {
  return {Code::kInvalidArgument,
          format("%s: %lld blocks of threads (%lld at most)", name, static_cast<long long>(blocks),
                 static_cast<long long>(kGridLimit))};
}

}  // namespace gradwire::cuda
