#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/emulation/devices.h"
#include "tests/emulation/emulated_device.h"
#include "tests/emulation/emulated_memory.h"
#include "tests/emulation/graphs.h"
#include "tests/emulation/queues.h"
#include "tests/emulation/words.h"

namespace gradwire::emulation {
namespace {
// The runtime's own state is the process's, here as there.
std::atomic<std::size_t> living_allocations = 0;
std::atomic<std::size_t> allocations_left = kEndless;
std::atomic<std::size_t> early_frees = 0;
std::atomic<bool> words_refused = false;
std::atomic<std::size_t> events_left = kEndless;
std::atomic<std::size_t> copies_left = kEndless;
std::atomic<bool> copies_wait = false;

// One less; false when none was left.
bool take_one(std::atomic<std::size_t>& left) {
  if (left == 0) return false;
  if (left != kEndless) --left;
  return true;
}

// Blocks of pinned memory by address.
class PinnedMemory {
 public:
  void note(void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[data] = bytes;
    living_ += bytes;
    most_ = std::max(most_, living_);
  }
  void forget(void* data) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(data);
    if (block == blocks_.end()) return;
    living_ -= block->second;
    blocks_.erase(block);
  }
  std::size_t most() {
    const std::lock_guard lock(mutex_);
    return most_;
  }
  bool has(const void* data) {
    const std::lock_guard lock(mutex_);
    return begin_of(data) != nullptr;
  }
  // A copy from or to that memory is enqueued, until what is returned goes. Null elsewhere.
  std::shared_ptr<void> use(const void* data) {
    const std::lock_guard lock(mutex_);
    void* const begin = begin_of(data);
    if (begin == nullptr) return nullptr;
    ++uses_[begin];
    return {begin, [this](void* used) {
              const std::lock_guard unlock(mutex_);
              if (--uses_[used] == 0) uses_.erase(used);
            }};
  }
  bool is_used(void* data) {
    const std::lock_guard lock(mutex_);
    return uses_.count(data) != 0;
  }

 private:
  // Of the block in which this is; null where there is none.
  void* begin_of(const void* data) const {
    auto next = blocks_.upper_bound(const_cast<void*>(data));
    if (next == blocks_.begin()) return nullptr;
    const auto& [begin, bytes] = *--next;
    return static_cast<const std::byte*>(data) < static_cast<std::byte*>(begin) + bytes ? begin
                                                                                        : nullptr;
  }

  std::mutex mutex_;
  std::map<void*, std::size_t> blocks_;
  std::map<void*, int> uses_;  // by copies that are enqueued
  std::size_t living_ = 0;
  std::size_t most_ = 0;
};
// Left to the end of the process, as memory that is freed there.
PinnedMemory& pinned() {
  static auto* const memory = new PinnedMemory;
  return *memory;
}

cudaError_t allocate(void** data, std::size_t bytes, Owner owner) {
  if (!take_one(allocations_left)) return cudaErrorMemoryAllocation;
  *data = take_memory(bytes, owner);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  ++living_allocations;
  return cudaSuccess;
}

// What a copy, or a memset, will write there is not there before: to be called as it may begin.
std::function<void()> spoil(void* data, std::size_t bytes) {
  return [data, bytes] {
    const TouchDevices here;
    std::memset(data, kPoison, bytes);
  };
}

// CUDA stages memory that is not pinned, and may wait for the stream then.
bool may_wait(const void* dst, const void* src, const CUstream_st* stream) {
  if (stream != nullptr && stream->recording) return false;
  return (device_of_memory(dst) < 0 && !pinned().has(dst)) ||
         (device_of_memory(src) < 0 && !pinned().has(src));
}

bool overlap(const void* a, const void* b, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(a);
  const auto other = reinterpret_cast<std::uintptr_t>(b);
  return at < other + bytes && other < at + bytes;
}
}  // namespace

std::size_t allocations() {
  drain_all();
  return living_allocations;
}
void refuse_word_waits(bool refused) { words_refused = refused; }
bool word_waits_are_refused() { return words_refused; }
std::size_t frees_before_their_time() { return early_frees; }
std::size_t most_pinned_bytes() { return pinned().most(); }
void note_pinned(void* data, std::size_t bytes) { pinned().note(data, bytes); }
void forget_pinned(void* data) { pinned().forget(data); }
void refuse_allocations_after(std::size_t count) { allocations_left = count; }
void refuse_events_after(std::size_t count) { events_left = count; }
void refuse_copies_after(std::size_t count) { copies_left = count; }
void wait_in_copies(bool always) { copies_wait = always; }

}  // namespace gradwire::emulation

using gradwire::emulation::allocate;
using gradwire::emulation::copies_left;
using gradwire::emulation::early_frees;
using gradwire::emulation::events_left;
using gradwire::emulation::living_allocations;
using gradwire::emulation::Owner;
using gradwire::emulation::take_one;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    default: return "cudaErrorOfTheEmulation";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "invalid";
}

struct CUmemPoolHandle_st {
  int device = 0;
};

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  gradwire::emulation::need_context();
  *free = *total = std::size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}
// Never freed, as pools that gradwire makes.
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  static auto& all = *new std::deque<CUmemPoolHandle_st>();
  all.push_back({properties->location.id});
  *pool = &all.back();
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access,
                                 std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (access[i].location.id == pool->device) return cudaErrorInvalidValue;
    gradwire::emulation::note_access(pool->device, access[i].location.id);
  }
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** data, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  gradwire::emulation::need_context();
  if (pool->device != gradwire::emulation::device_of_stream(stream)) return cudaErrorInvalidValue;
  if (!gradwire::emulation::has_room(pool->device, bytes)) return cudaErrorMemoryAllocation;
  const cudaError_t error = allocate(data, bytes, Owner::kDevice);
  if (error != cudaSuccess) return error;
  gradwire::emulation::note_memory(*data, bytes, pool->device);
  // It is the stream's from here on: what others have written there before is gone.
  gradwire::emulation::enqueue(stream, gradwire::emulation::spoil(*data, bytes));
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  gradwire::emulation::need_context();
  const cudaError_t error = gradwire::emulation::check_stream(stream, {data});
  if (error != cudaSuccess) return error;
  if (stream == nullptr && gradwire::emulation::spoils_blocking_captures()) {
    return cudaErrorStreamCaptureImplicit;
  }
  if (stream == nullptr && gradwire::emulation::holds_work_apart()) ++early_frees;
  if (stream != nullptr && stream->recording) {
    stream->recording->memory.push_back(data);
    return cudaSuccess;
  }
  gradwire::emulation::enqueue(stream, [data] {
    gradwire::emulation::forget_memory(data);
    gradwire::emulation::free_memory(data);
    --living_allocations;
  });
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  gradwire::emulation::need_context();
  if (gradwire::emulation::spoils_captures_beside()) return cudaErrorStreamCaptureUnsupported;
  const cudaError_t error = allocate(data, bytes, Owner::kHost);
  if (error == cudaSuccess) gradwire::emulation::note_pinned(*data, bytes);
  return error;
}
cudaError_t cudaFreeHost(void* data) {
  gradwire::emulation::need_context();
  if (gradwire::emulation::spoils_captures_beside()) return cudaErrorStreamCaptureUnsupported;
  if (gradwire::emulation::pinned().is_used(data)) ++early_frees;
  gradwire::emulation::forget_pinned(data);
  gradwire::emulation::free_memory(data);
  --living_allocations;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (!take_one(copies_left)) return cudaErrorInvalidValue;
  const cudaError_t error = gradwire::emulation::check_stream(stream, {dst, src});
  if (error != cudaSuccess) return error;
  std::function<void()> before;
  if (!gradwire::emulation::overlap(dst, src, bytes))
    before = gradwire::emulation::spoil(dst, bytes);
  const auto used = std::make_pair(gradwire::emulation::pinned().use(dst),
                                   gradwire::emulation::pinned().use(src));
  gradwire::emulation::enqueue(
      stream, [=, used = used] { std::memcpy(dst, src, bytes); }, std::move(before));
  if (gradwire::emulation::may_wait(dst, src, stream) &&
      (gradwire::emulation::copies_wait || gradwire::emulation::draw_wait(stream))) {
    gradwire::emulation::drain(stream);
  }
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  gradwire::emulation::need_context();
  const cudaError_t error = gradwire::emulation::check_stream(stream, {data});
  if (error != cudaSuccess) return error;
  gradwire::emulation::enqueue(
      stream, [=] { std::memset(data, value, bytes); }, gradwire::emulation::spoil(data, bytes));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  gradwire::emulation::need_context();
  *stream = gradwire::emulation::make_stream(flags == cudaStreamNonBlocking);
  return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  *flags = stream->queue->apart ? cudaStreamNonBlocking : cudaStreamDefault;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  gradwire::emulation::need_context();
  gradwire::emulation::leave_capture(stream);
  gradwire::emulation::destroy_stream(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  gradwire::emulation::need_context();
  if (gradwire::emulation::spoils_capture(stream)) return cudaErrorStreamCaptureUnsupported;
  if (gradwire::emulation::spoils_captures_beside()) return cudaErrorStreamCaptureUnsupported;
  gradwire::emulation::drain(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (gradwire::emulation::wait_in_capture(stream, event)) return cudaSuccess;
  if (gradwire::emulation::spoils_capture(stream)) return cudaErrorStreamCaptureIsolation;
  if (gradwire::emulation::is_in_capture(event)) return cudaErrorStreamCaptureIsolation;
  gradwire::emulation::wait_for(stream, event);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  gradwire::emulation::need_context();
  if (!take_one(events_left)) return cudaErrorMemoryAllocation;
  *event = new CUevent_st{.device = gradwire::emulation::current_device(),
                          .timed = (flags & cudaEventDisableTiming) == 0};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  gradwire::emulation::need_context();
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  gradwire::emulation::need_context();
  const cudaError_t error = gradwire::emulation::check_event(event, stream);
  if (error != cudaSuccess) return error;
  if (gradwire::emulation::record_in_capture(event, stream)) return cudaSuccess;
  gradwire::emulation::record(event, stream);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  gradwire::emulation::need_context();
  if (gradwire::emulation::spoils_captures_beside()) return cudaErrorStreamCaptureUnsupported;
  if (gradwire::emulation::is_in_capture(event)) return cudaErrorCapturedEvent;
  return gradwire::emulation::has_passed(event) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (!from->timed || !to->timed) return cudaErrorInvalidResourceHandle;
  const auto between = gradwire::emulation::time_of(to) - gradwire::emulation::time_of(from);
  *milliseconds = std::chrono::duration<float, std::milli>(between).count();
  return cudaSuccess;
}
