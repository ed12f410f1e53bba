#include "device/copy_lane.h"

#include "device/cuda/cuda_lane.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {

Result<std::unique_ptr<CopyLane>> CopyLane::create(Device device) {
  if constexpr (kHaveCuda) return cuda::make_lane(device);
  return Status(Code::kUnsupported, "this build has no CUDA (host memory wanted)");
}

}  // namespace gradwire
