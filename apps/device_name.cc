#include "apps/device_name.h"

#include <cstdint>
#include <string_view>

#include "base/text.h"

namespace gradwire {

Result<Device> parse_device(const std::string& text) {
  constexpr std::string_view kCuda = "cuda";
  constexpr std::int64_t kMostDevices = 1024;
  if (text == "cpu") return Device{};
  if (text == kCuda) return Device{MemorySpace::kCuda, 0};
  if (text.starts_with("cuda:")) {
    const auto number = to_int(std::string_view(text).substr(kCuda.size() + 1));
    if (number && *number >= 0 && *number < kMostDevices) {
      return Device{MemorySpace::kCuda, static_cast<int>(*number)};
    }
  }
  return Status(Code::kInvalidArgument,
                "device '" + text + "'; cpu, cuda or cuda:N, N from 0 on, wanted");
}

}  // namespace gradwire
