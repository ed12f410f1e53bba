// Where a rank's tensors lie, and by what they travel, as flags and variables spell it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::launch {

struct DeviceName {
  MemorySpace space = MemorySpace::kHost;
  std::optional<int> ordinal = {};  // none: which of CUDA's devices is for the rank to know
};
// "cpu", "cuda" or "cuda:N". kInvalidArgument for another word.
Result<DeviceName> parse_device(std::string_view text);
// "cpu", "cuda:1".
std::string to_string(Device device);

struct RankPlace {
  Device device = {};
  std::string transport = {};  // "nccl" has a number here
};
// What a device's name and a transport's come to on this rank. A number that only one of "cuda" and
// "nccl" has is the other's too; where neither has one it is that of `local_rank`
// (device_of_rank). kInvalidArgument where they name two devices, or one that is not there;
// kUnsupported where there is none, or no NCCL in this build.
Result<RankPlace> place_rank(const DeviceName& device, std::string_view transport, int local_rank);

// What a rank's thread keeps for its life: the place's device is the thread's, if it has one.
std::shared_ptr<void> take_place(const RankPlace& place);

}  // namespace gradwire::launch
