// A rank's CUDA device, and its threads'.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// CUDA device `ordinal`. Without one that of `local_rank`, the rank's number among the ranks of its
// host: modulo the devices that this process sees, so that ranks share them in turn where there are
// fewer, and a rank that was shown one alone takes that. kInvalidArgument, with how many there are,
// for a device that is not among them; kUnsupported where there is none, or no CUDA in this build.
Result<Device> device_of_rank(std::optional<int> ordinal, int local_rank);

// Makes the device the calling thread's while it lives, for those that work for one: libraries that
// use CUDA find it there, and no call makes a context on device 0. Of the host, and where the
// device is not to be had: nothing.
class ThreadOnDevice {
 public:
  explicit ThreadOnDevice(Device device);

 private:
  std::shared_ptr<void> there_;
};

// Whether memory of a device has a handle by which others (processes, network devices) reach it, as
// cudaMalloc's has; that of CUDA's pools, Buffer's among it, has none.
bool others_can_reach(const std::byte* data);

// Whose memory is at this address, by CUDA's driver: a device's, or else the host's. The host's in
// a build without CUDA, and where no driver is.
Device owner_of_memory(const void* data);

}  // namespace gradwire
