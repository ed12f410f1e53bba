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

// Of pinned memory for one copy: many are of a descriptor, or shorter.
constexpr std::size_t kLeastPinned = 64;
// Copies of which the memory is kept: those under way at a time are few.
constexpr std::size_t kMostSpare = 8;

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

Result<bool> DeviceCopy::passed() {
  if (!adrift_.ok()) return false;
  if (point_ == nullptr) return true;
  GW_ASSIGN(const bool over, point_->passed());
  if (!over) return false;
  point_.reset();
  if (!to_host_.empty()) std::memcpy(to_host_.data(), here_.bytes().data(), to_host_.size());
  return true;
}

Result<const CopyLane*> DeviceCopies::lane_of(gradwire::Device device) {
  auto lane = std::ranges::find(lanes_, device, &Lane::device);
  if (lane == lanes_.end()) {
    GW_ASSIGN(std::unique_ptr<CopyLane> copies, CopyLane::create(device));
    lanes_.push_back({device, std::move(copies)});
    lane = lanes_.end() - 1;
  }
  return static_cast<const CopyLane*>(lane->copies.get());
}

Result<Buffer> DeviceCopies::pinned(std::size_t bytes) {
  const auto fits = [bytes](const Buffer& buffer) { return buffer.bytes().size() >= bytes; };
  const auto found = std::ranges::find_if(spare_, fits);
  if (found == spare_.end()) {
    return Buffer::allocate(std::max(bytes, kLeastPinned), {MemorySpace::kPinnedHost, 0});
  }
  Buffer buffer = std::move(*found);
  spare_.erase(found);
  return buffer;
}

Result<DeviceCopy> DeviceCopies::begin(ConstByteSpan from, gradwire::Device from_device,
                                       ByteSpan to, gradwire::Device to_device) {
  DeviceCopy copy;
  if (from.empty()) return copy;
  if (!on_cuda(from_device) && !on_cuda(to_device)) {
    std::memcpy(to.data(), from.data(), from.size());
    return copy;
  }
  GW_ASSIGN(const CopyLane* const lane, lane_of(on_cuda(to_device) ? to_device : from_device));
  GW_ASSIGN(auto point, lane->make_point());
  if (on_cuda(from_device) != on_cuda(to_device)) {
    GW_ASSIGN(copy.here_, pinned(from.size()));
    const ByteSpan here = copy.here_.bytes().first(from.size());
    if (on_cuda(to_device)) {
      std::memcpy(here.data(), from.data(), from.size());
      from = here;
      from_device = copy.here_.device();
    } else {
      copy.to_host_ = to;
      to = here;
      to_device = copy.here_.device();
    }
  }
  GW_TRY(copy_bytes(from, from_device, to, to_device, lane->to_device()));
  copy.adrift_ = point->record(lane->to_device());
  copy.point_ = std::move(point);
  return copy;
}

void DeviceCopies::take_back(DeviceCopy over) {
  if (!over.here_.bytes().empty() && spare_.size() < kMostSpare) {
    spare_.push_back(std::move(over.here_));
  }
}

// What cannot be followed keeps its memory to the process's end.
void DeviceCopies::give_up(DeviceCopy copy) {
  if (!copy.adrift_.ok()) {
    static_cast<void>(new DeviceCopy(std::move(copy)));
  } else if (copy.point_ != nullptr) {
    copy.point_->give_up();
  }
}

}  // namespace gradwire::ucx
