#include "device/cuda/pools.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "device/cuda/capture.h"
#include "device/cuda/cuda_status.h"
#include "device/cuda/memory.h"

namespace gradwire::cuda {
namespace {

constexpr std::size_t kPartToKeep = 8;  // of a device's memory

struct Pools {
  std::mutex mutex;
  std::map<int, cudaMemPool_t> of_device;
};
// Never destroyed: memory may be freed by what is.
Pools& pools() {
  static auto& all = *new Pools();
  return all;
}

cudaMemLocation on(int ordinal) {
  cudaMemLocation place = {};
  place.type = cudaMemLocationTypeDevice;
  place.id = ordinal;
  return place;
}

Status set_up(cudaMemPool_t pool, std::uint64_t keep) {
  GW_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  int no = 0;
  GW_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &no));
  return {};
}

Result<cudaMemPool_t> make_pool(int ordinal) {
  const BesideCaptures beside;
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location = on(ordinal);
  std::size_t free = 0;
  std::size_t all = 0;
  GW_CUDA(cudaMemGetInfo(&free, &all));
  cudaMemPool_t pool = nullptr;
  GW_CUDA(cudaMemPoolCreate(&pool, &properties));
  const Status status = set_up(pool, all / kPartToKeep);
  if (status.ok()) return pool;
  static_cast<void>(cudaMemPoolDestroy(pool));
  return status;
}

Result<cudaMemPool_t> pool_of(int ordinal) {
  Pools& all = pools();
  const std::lock_guard lock(all.mutex);
  const auto found = all.of_device.find(ordinal);
  if (found != all.of_device.end()) return found->second;
  GW_ASSIGN(const cudaMemPool_t pool, make_pool(ordinal));
  all.of_device.emplace(ordinal, pool);
  return pool;
}

}  // namespace

Result<void*> take_from_pool(std::size_t bytes, Device device, cudaStream_t stream) {
  GW_ASSIGN(const cudaMemPool_t pool, pool_of(device.ordinal));
  void* data = nullptr;
  const cudaError_t first = cudaMallocFromPoolAsync(&data, bytes, pool, stream);
  if (first == cudaSuccess) return data;
  const Status refused = status_of(first, "cudaMallocFromPoolAsync(&data, bytes, pool, stream)");
  GW_ASSIGN(const bool captured, is_capturing({device, stream}));
  if (first != cudaErrorMemoryAllocation || captured) return refused;
  // What has been freed may not have come to its turn.
  GW_TRY(synchronize({device, nullptr}).with_context(std::string(refused.message())));
  GW_CUDA(cudaMallocFromPoolAsync(&data, bytes, pool, stream));
  return data;
}

Status let_peers_reach(Device device) {
  const OnDevice here(device);
  GW_TRY(here.status());
  GW_ASSIGN(const cudaMemPool_t pool, pool_of(device.ordinal));
  int count = 0;
  GW_CUDA(cudaGetDeviceCount(&count));
  for (int peer = 0; peer < count; ++peer) {
    if (peer == device.ordinal) continue;
    int can = 0;
    GW_CUDA(cudaDeviceCanAccessPeer(&can, peer, device.ordinal));
    if (can == 0) continue;
    cudaMemAccessDesc access = {};
    access.location = on(peer);
    access.flags = cudaMemAccessFlagsProtReadWrite;
    GW_CUDA(cudaMemPoolSetAccess(pool, &access, 1));
  }
  return {};
}

}  // namespace gradwire::cuda
