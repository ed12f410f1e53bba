#include "comm/ucx/device_memory.h"

#include <ucs/memory/memory_type.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "device/ops.h"

namespace gradwire::ucx {
namespace {

// Of one copy, however busy the device is: whoever waits here drives all operations.
constexpr double kCopySeconds = 10;

bool on_cuda(gradwire::Device device) { return device.space == MemorySpace::kCuda; }

// Zero where the context does not say.
std::uint64_t types_of(ucp_context_h context) {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (ucp_context_query(context, &attributes) != UCS_OK) return 0;
  return attributes.memory_types;
}

bool has(std::uint64_t types, unsigned type) { return (types >> type & 1) != 0; }

// As UCX calls them, whose own table is data of a library that is opened on demand.
std::string name_of(unsigned type) {
  constexpr std::array<std::string_view, 5> kNames{"host", "cuda", "cuda-managed", "rocm",
                                                   "rocm-managed"};
  static_assert(UCS_MEMORY_TYPE_ROCM_MANAGED + 1 == kNames.size());
  return type < kNames.size() ? std::string(kNames[type]) : "type " + std::to_string(type);
}

}  // namespace

std::vector<std::string> memory_types(ucp_context_h context) {
  const std::uint64_t types = types_of(context);
  std::vector<std::string> names;
  for (unsigned type = 0; type < UCS_MEMORY_TYPE_LAST; ++type) {
    if (has(types, type)) names.push_back(name_of(type));
  }
  return names;
}

CudaRoute cuda_route(ucp_context_h context, const std::vector<Setting>& settings) {
  if (!has(types_of(context), UCS_MEMORY_TYPE_CUDA)) {
    return {false, "UCX " + library_version() +
                       " names no memory type cuda here (built without CUDA, no device, or "
                       "UCX_TLS leaves its transports out)"};
  }
  const bool eager = std::ranges::any_of(settings, [](const Setting& setting) {
    return setting.variable == "UCX_RNDV_THRESH" && setting.source == Setting::Source::kGradwire;
  });
  if (eager) {
    return {false,
            "UCX takes it, but UCX_RNDV_THRESH=inf, and eager messages copy it fragment by "
            "fragment (set UCX_RNDV_THRESH to have it in UCX's hands)"};
  }
  return {true, "UCX takes it, and may use rendezvous"};
}

ucs_memory_type_t memory_type(gradwire::Device device) {
  return on_cuda(device) ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

Status DeviceCopies::copy(ConstByteSpan from, gradwire::Device from_device, ByteSpan to,
                          gradwire::Device to_device) {
  if (from.empty()) return {};
  if (!on_cuda(from_device) && !on_cuda(to_device)) {
    std::memcpy(to.data(), from.data(), from.size());
    return {};
  }
  const gradwire::Device device = on_cuda(to_device) ? to_device : from_device;
  auto lane = std::ranges::find(lanes_, device, &Lane::device);
  if (lane == lanes_.end()) {
    GW_ASSIGN(std::unique_ptr<CopyLane> copies, CopyLane::create(device));
    lanes_.push_back({device, std::move(copies)});
    lane = lanes_.end() - 1;
  }
  GW_TRY(copy_bytes(from, from_device, to, to_device, lane->copies->to_device()));
  return lane->copies->finish(kCopySeconds);
}

}  // namespace gradwire::ucx
