#include "adapters/launch/rank_place.h"

#include <cstdint>

#include "adapters/launch/variables.h"
#include "base/text.h"
#include "collectives/device/nccl_backend.h"
#include "device/rank_device.h"

namespace gradwire::launch {

Result<DeviceName> parse_device(std::string_view text) {
  constexpr std::string_view kCuda = "cuda";
  constexpr std::int64_t kMostDevices = 1024;
  if (text == "cpu") return DeviceName{};
  if (text == kCuda) return DeviceName{MemorySpace::kCuda};
  if (text.starts_with("cuda:")) {
    const auto number = to_int(text.substr(kCuda.size() + 1));
    if (number && *number >= 0 && *number < kMostDevices) {
      return DeviceName{MemorySpace::kCuda, static_cast<int>(*number)};
    }
  }
  return Status(Code::kInvalidArgument,
                "device '" + std::string(text) + "' (expected cpu, cuda or cuda:N, N >= 0)");
}

std::string to_string(Device device) {
  return device.space == MemorySpace::kCuda ? format("cuda:%d", device.ordinal) : "cpu";
}

Result<RankPlace> place_rank(const DeviceName& device, std::string_view transport, int local_rank) {
  const bool nccl = is_nccl(transport);
  const bool there = device.space == MemorySpace::kCuda;
  if (nccl) GW_TRY(check_transport(transport));
  RankPlace place{.transport = std::string(transport)};
  if (!nccl && !there) return place;
  std::optional<int> ordinal = device.ordinal;
  if (nccl) {
    GW_ASSIGN(const std::optional<int> named, nccl_ordinal(transport));
    if (named && ordinal && *named != *ordinal) {
      return Status(Code::kInvalidArgument,
                    format("device cuda:%d with transport nccl:%d (expected nccl or nccl:%d)",
                           *ordinal, *named, *ordinal));
    }
    if (named) ordinal = named;
  }
  const auto taken = device_of_rank(ordinal, local_rank);
  if (!taken.has_value())
    return taken.error().with_context(there ? "device cuda" : "transport nccl");
  if (there) place.device = taken.value();
  if (nccl) place.transport = format("nccl:%d", taken.value().ordinal);
  return place;
}

std::shared_ptr<void> take_place(const RankPlace& place) {
  return std::make_shared<ThreadOnDevice>(place.device);
}

}  // namespace gradwire::launch
