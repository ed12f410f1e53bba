#include "device/cuda/devices.h"

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_status.h"

namespace gradwire::cuda {

Result<int> count_devices() {
  int count = 0;
  GW_CUDA(cudaGetDeviceCount(&count));
  if (count > 0) return count;
  return status_of(cudaErrorNoDevice, "cudaGetDeviceCount");
}

}  // namespace gradwire::cuda
