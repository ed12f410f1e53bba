// launch.h on a device. For nvcc alone.
#pragma once

#include "device/cuda/launch.h"

namespace gradwire::cuda {

class DeviceBlock {
 public:
  __device__ unsigned thread() const { return threadIdx.x; }
  __device__ unsigned warp() const { return threadIdx.x / 32; }
  __device__ unsigned lane() const { return threadIdx.x % 32; }
  __device__ std::int64_t block() const { return blockIdx.x; }
  __device__ std::int64_t blocks() const { return gridDim.x; }

  __device__ void barrier() const { __syncthreads(); }
  __device__ void warp_barrier() const { __syncwarp(kAll); }
  __device__ bool any(bool mine) const { return __any_sync(kAll, mine) != 0; }
  __device__ std::uint32_t ballot(bool mine) const { return __ballot_sync(kAll, mine); }
  template <typename T>
  __device__ T shuffle(T mine, unsigned lane) const {
    static_assert(sizeof(T) == 4);
    return __shfl_sync(kAll, mine, static_cast<int>(lane));
  }

  __device__ std::uint32_t add(std::uint32_t* to, std::uint32_t value) const {
    return atomicAdd(to, value);
  }
  __device__ std::uint32_t most(std::uint32_t* to, std::uint32_t value) const {
    return atomicMax(to, value);
  }
  __device__ std::uint64_t least(std::uint64_t* to, std::uint64_t value) const {
    return atomicMin(reinterpret_cast<unsigned long long*>(to),
                     static_cast<unsigned long long>(value));
  }

 private:
  static constexpr unsigned kAll = 0xffffffffu;
};

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads) run_kernel(Kernel kernel) {
  __shared__ typename Kernel::Shared shared;
  DeviceBlock block;
  kernel.run(block, shared);
}

// What the launch itself says: cudaGetLastError() would also say what an earlier call had said,
// which somebody has dealt with.
template <class Kernel>
cudaError_t start(const Kernel& kernel, unsigned blocks, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(Kernel::kThreads);
  config.stream = stream;
  void* arguments[] = {const_cast<Kernel*>(&kernel)};
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(&run_kernel<Kernel>),
                             arguments);
}

}  // namespace gradwire::cuda
