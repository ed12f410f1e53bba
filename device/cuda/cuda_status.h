// CUDA's errors as Status.
#pragma once

#include <cuda_runtime_api.h>

#include "gradwire/status.h"

namespace gradwire::cuda {

// OK, or the error with its CUDA name, what it means and the call: kOutOfMemory where the device's
// memory is out; kUnsupported where there is no device, no driver that is new enough, or no kernel
// for the device in this build; kInvalidArgument for a device number that does not exist; else
// kInternal. (An error of work that was enqueued earlier may surface at any later call.)
Status status_of(cudaError_t error, const char* call);

// GW_CUDA(cudaMemsetAsync(to, 0, bytes, stream)): leaves with the error if it is one.
#define GW_CUDA(call) GW_TRY(::gradwire::cuda::status_of(call, #call))

}  // namespace gradwire::cuda
