#include "device/cuda/memory.h"

#include <cstring>
#include <utility>

#include "device/cuda/cuda_status.h"
#include "device/cuda/stream.h"

namespace gradwire::cuda {
namespace {

bool on_device(Device device) { return device.space == MemorySpace::kCuda; }

Result<std::byte*> allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  GW_CUDA(cudaMallocHost(&data, bytes));
  std::memset(data, 0, bytes);
  return static_cast<std::byte*>(data);
}

}  // namespace

OnDevice::OnDevice(Device device) {
  if (!on_device(device)) return;
  int before = 0;
  status_ = status_of(cudaGetDevice(&before), "cudaGetDevice");
  if (!status_.ok() || before == device.ordinal) return;
  status_ = status_of(cudaSetDevice(device.ordinal), "cudaSetDevice");
  if (status_.ok()) before_ = before;
}

OnDevice::~OnDevice() {
  if (before_ >= 0) static_cast<void>(cudaSetDevice(before_));
}

Result<std::byte*> allocate_zeroed(std::size_t bytes, Device device) {
  const std::size_t room = bytes == 0 ? 1 : bytes;
  if (device.space == MemorySpace::kPinnedHost) return allocate_pinned(room);
  const OnDevice here(device);
  GW_TRY(here.status());
  // Any stream may use it when the call returns. The default stream, waited for, would make that
  // the end of all work on streams that wait for it, of whatever length.
  GW_ASSIGN(const OwnedStream apart, OwnedStream::create_apart(device));
  const cudaStream_t stream = native(apart.stream());
  void* data = nullptr;
  GW_CUDA(cudaMallocAsync(&data, room, stream));
  Status zeroed = status_of(cudaMemsetAsync(data, 0, room, stream), "cudaMemsetAsync");
  if (zeroed.ok()) zeroed = status_of(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  if (!zeroed.ok()) {
    static_cast<void>(cudaFreeAsync(data, stream));
    return zeroed;
  }
  return static_cast<std::byte*>(data);
}

void release(std::byte* data, Device device) noexcept {
  // Errors here are those of earlier work, which whoever waits for that work is told.
  if (device.space == MemorySpace::kPinnedHost) {
    static_cast<void>(cudaFreeHost(data));
    return;
  }
  const OnDevice here(device);
  static_cast<void>(cudaFreeAsync(data, nullptr));
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
  const OnDevice here(stream.device);
  GW_TRY(here.status());
  GW_CUDA(cudaStreamSynchronize(native(stream)));
  return {};
}

Result<Scratch> Scratch::allocate(std::size_t bytes, const Stream& stream) {
  if (bytes == 0) return Scratch(nullptr, stream);
  void* data = nullptr;
  GW_CUDA(cudaMallocAsync(&data, bytes, native(stream)));
  return Scratch(static_cast<std::byte*>(data), stream);
}

Scratch::Scratch(Scratch&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_) {}

Scratch::~Scratch() {
  if (data_ != nullptr) static_cast<void>(cudaFreeAsync(data_, native(stream_)));
}

}  // namespace gradwire::cuda
