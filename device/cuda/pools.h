// Memory of devices in stream order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::cuda {

// `bytes` > 0 of the device's pool, for work on `stream` from now on; its device is the thread's
// (OnDevice). Free them with cudaFreeAsync(). A pool of gradwire's own: what it gives never waits
// for another stream's work, and what is freed stays with it, up to an eighth of the device's
// memory, so that a step does not ask the system for what the step before had. Where there is not
// enough it waits for what has been freed in the order of the default stream, unless `stream` is
// captured.
Result<void*> take_from_pool(std::size_t bytes, Device device, cudaStream_t stream);

}  // namespace gradwire::cuda
