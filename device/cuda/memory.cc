#include "device/cuda/memory.h"

#include <cstring>
#include <utility>

#include "device/cuda/capture.h"
#include "device/cuda/cuda_status.h"
#include "device/cuda/late_work.h"
#include "device/cuda/pools.h"
#include "device/cuda/stream.h"
#include "device/patience.h"

namespace gradwire::cuda {
namespace {

bool on_device(Device device) { return device.space == MemorySpace::kCuda; }

Result<std::byte*> allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  const BesideCaptures beside;
  GW_CUDA(cudaMallocHost(&data, bytes));
  std::memset(data, 0, bytes);
  return static_cast<std::byte*>(data);
}

}  // namespace

Result<std::byte*> allocate_zeroed(std::size_t bytes, Device device) {
  const std::size_t room = bytes == 0 ? 1 : bytes;
  if (device.space == MemorySpace::kPinnedHost) return allocate_pinned(room);
  const OnDevice here(device);
  GW_TRY(here.status());
  // Any stream may use it when the call returns. The default stream, waited for, would make that
  // the end of all work on streams that wait for it, of whatever length.
  GW_ASSIGN(const OwnedStream apart, OwnedStream::create_apart(device));
  const cudaStream_t stream = native(apart.stream());
  GW_ASSIGN(void* const data, take_from_pool(room, device, stream));
  Status zeroed = status_of(cudaMemsetAsync(data, 0, room, stream), "cudaMemsetAsync");
  if (zeroed.ok()) zeroed = synchronize(apart.stream());
  if (!zeroed.ok()) {
    static_cast<void>(cudaFreeAsync(data, stream));
    return zeroed;
  }
  return static_cast<std::byte*>(data);
}

void release(std::byte* data, Device device) noexcept {
  // Errors here are those of earlier work, which whoever waits for that work is told.
  if (device.space == MemorySpace::kPinnedHost) {
    free_pinned(data);
    return;
  }
  free_in_order(data, device);
}

Status copy(const std::byte* src, Device src_device, std::byte* dst, Device dst_device,
            std::size_t bytes, const Stream& stream) {
  if (bytes == 0) return {};
  if (!on_device(src_device) && !on_device(dst_device)) {
    std::memcpy(dst, src, bytes);
    return {};
  }
  const OnDevice here(on_device(dst_device) ? dst_device : src_device);
  GW_TRY(here.status());
  // Unified addressing: the addresses say where both are.
  GW_CUDA(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, native(stream)));
  return {};
}

Status synchronize(const Stream& stream) {
  GW_TRY(refuse_capture("waiting for a device", stream));
  GW_ASSIGN(Event end, Event::create(stream.device));
  GW_TRY(end.record(stream));
  const double seconds = DevicePatience::seconds();
  GW_ASSIGN(const bool passed, poll_until([&] { return end.passed(); }, deadline_in(seconds)));
  if (passed) return {};
  give_up_on(std::move(end));
  return device_is_late(stream.device, seconds);
}

Result<Scratch> Scratch::allocate(std::size_t bytes, const Stream& stream) {
  if (bytes == 0) return Scratch(nullptr, {});
  GW_ASSIGN(void* const data, take_from_pool(bytes, stream.device, native(stream)));
  return Scratch(static_cast<std::byte*>(data), stream);
}

Scratch::Scratch(Scratch&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_) {}

// The default stream is the current device's.
Scratch::~Scratch() {
  if (data_ == nullptr) return;
  const OnDevice here(stream_.device);
  static_cast<void>(cudaFreeAsync(data_, native(stream_)));
}

}  // namespace gradwire::cuda
