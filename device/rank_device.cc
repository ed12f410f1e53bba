#include "device/rank_device.h"

#include "base/text.h"
#include "device/cuda/devices.h"
#include "device/cuda/driver.h"
#include "device/cuda/have_cuda.h"
#include "device/cuda/memory_calls.h"

namespace gradwire {

Result<Device> device_of_rank(std::optional<int> ordinal, int local_rank) {
  if constexpr (kHaveCuda) {
    GW_ASSIGN(const int count, cuda::count_devices());
    const int taken = ordinal.value_or(local_rank % count);
    if (taken >= 0 && taken < count) return Device{MemorySpace::kCuda, taken};
    return Status(Code::kInvalidArgument,
                  count == 1 ? format("CUDA device %d (the only one here is 0)", taken)
                             : format("CUDA device %d (expected 0 to %d: %d are here)", taken,
                                      count - 1, count));
  }
  return Status(Code::kUnsupported, "no CUDA in this build, so no device");
}

ThreadOnDevice::ThreadOnDevice(Device device) {
  if constexpr (kHaveCuda) {
    if (device.space == MemorySpace::kCuda) there_ = std::make_shared<cuda::OnDevice>(device);
  }
}

bool others_can_reach(const std::byte* data) {
  if constexpr (kHaveCuda) return cuda::has_ipc_handle(data);
  return false;
}

Device owner_of_memory(const void* data) {
  if constexpr (kHaveCuda) {
    const int ordinal = cuda::device_of_memory(data);
    if (ordinal >= 0) return {MemorySpace::kCuda, ordinal};
  }
  return {};
}

}  // namespace gradwire
