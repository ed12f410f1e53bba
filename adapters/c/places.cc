#include "adapters/c/places.h"

#include "adapters/c/outcome.h"
#include "base/text.h"
#include "device/rank_device.h"

namespace gradwire::c {
namespace {

Status refuse_place(const char* function, const std::string& why) {
  return {Code::kInvalidArgument, std::string(function) + ": " + why};
}

}  // namespace

std::string text_of_memory(Device device) {
  return device.space == MemorySpace::kCuda ? format("memory of CUDA device %d", device.ordinal)
                                            : "host memory";
}

Result<Device> device_of(const char* function, gw_space space, int ordinal) {
  if (space == GW_CUDA) {
    auto device = device_of_rank(ordinal, 0);
    if (device.has_value()) return device;
    const bool none = device.error().code() == Code::kUnsupported;  // does not say which one
    return device.error().with_context(
        std::string(function) + (none ? format(": CUDA device %d", ordinal) : std::string()));
  }
  if (space != GW_HOST) {
    return refuse_place(function, format("space %d (expected GW_HOST (0) or GW_CUDA (1))",
                                         static_cast<int>(space)));
  }
  if (ordinal != 0) {
    return refuse_place(
        function, format("device %d of space GW_HOST (expected 0, or space GW_CUDA)", ordinal));
  }
  return Device{};
}

Result<Stream> stream_of(const char* function, const gw_stream& given) {
  GW_ASSIGN(const Device device, device_of(function, given.space, given.device));
  if (given.space == GW_HOST && given.native != nullptr) {
    return refuse_place(function, format("stream %p of space GW_HOST (expected NULL, or space "
                                         "GW_CUDA for a CUDA stream)",
                                         given.native));
  }
  return Stream{device, given.native};
}

Status check_memory(const char* function, const char* what, const void* data, Device device) {
  if (device.space != MemorySpace::kCuda || data == nullptr) return {};
  const Device owner = owner_of_memory(data);
  if (owner == device) return {};
  return refuse_place(
      function, format("%s %p is in %s (expected %s)", what, data, text_of_memory(owner).c_str(),
                       text_of_memory(device).c_str()));
}

}  // namespace gradwire::c

using namespace gradwire;
using namespace gradwire::c;

gw_status gw_memory_place(const void* address, gw_stream* place) {
  return guarded([&]() -> Status {
    GW_TRY(check_given(address, "gw_memory_place", "address"));
    GW_TRY(check_given(place, "gw_memory_place", "place"));
    const Device owner = owner_of_memory(address);
    const bool on_device = owner.space == MemorySpace::kCuda;
    *place = {on_device ? GW_CUDA : GW_HOST, on_device ? owner.ordinal : 0, nullptr};
    return {};
  });
}
