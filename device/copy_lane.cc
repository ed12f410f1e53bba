#include "device/copy_lane.h"

#include "base/text.h"
#include "device/cuda/cuda_lane.h"
#include "device/cuda/have_cuda.h"
#include "device/patience.h"

namespace gradwire {
Result<bool> await(const DevicePoint& point, Deadline until) {
  return poll_until([&] { return point.passed(); }, until);
}

Status device_is_late(Device device, double seconds) {
  return {Code::kTimedOut,
          format("CUDA device %d did not finish its work within %.1f s", device.ordinal, seconds)};
}

Status CopyLane::finish(double seconds) const {
  const Stream stream = to_device();
  GW_ASSIGN(const std::unique_ptr<DevicePoint> point, make_point());
  GW_TRY(point->record(stream));
  GW_ASSIGN(const bool passed, await(*point, deadline_in(seconds)));
  if (passed) return {};
  point->give_up();
  return device_is_late(stream.device, seconds);
}

Result<std::unique_ptr<CopyLane>> CopyLane::create(Device device) {
  if constexpr (kHaveCuda) return cuda::make_lane(device);
  return Status(Code::kUnsupported, "this build has no CUDA (expected host memory)");
}

}  // namespace gradwire
