#include "device/copy_lane.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/text.h"
#include "device/cuda/cuda_lane.h"
#include "device/cuda/have_cuda.h"

namespace gradwire {
namespace {

// Kernels and copies of a bucket are through in less than the first looks take, as a rule; what
// takes longer is worth less of the host's time.
constexpr int kLooksWithoutNap = 200;
constexpr std::chrono::microseconds kShortestNap{20};
constexpr std::chrono::microseconds kLongestNap{500};

}  // namespace

Result<bool> await(const DevicePoint& point, Deadline until) {
  std::chrono::microseconds nap = kShortestNap;
  for (int looks = 0;; ++looks) {
    GW_ASSIGN(const bool passed, point.passed());
    if (passed) return true;
    if (std::chrono::steady_clock::now() >= until) return false;
    if (looks < kLooksWithoutNap) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, kLongestNap);
    }
  }
}

Status CopyLane::finish(double seconds) const {
  const Stream stream = to_device();
  GW_ASSIGN(const std::unique_ptr<DevicePoint> point, make_point());
  GW_TRY(point->record(stream));
  GW_ASSIGN(const bool passed, await(*point, deadline_in(seconds)));
  if (passed) return {};
  return {Code::kTimedOut, format("CUDA device %d has not run within %.1f s what it was given",
                                  stream.device.ordinal, seconds)};
}

Result<std::unique_ptr<CopyLane>> CopyLane::create(Device device) {
  if constexpr (kHaveCuda) return cuda::make_lane(device);
  return Status(Code::kUnsupported, "this build has no CUDA (host memory wanted)");
}

}  // namespace gradwire
