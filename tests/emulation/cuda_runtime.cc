#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "tests/emulation/emulated_device.h"

struct CUstream_st {};
struct CUevent_st {
  std::chrono::steady_clock::time_point at;
};

namespace gradwire::emulation {
namespace {
// The runtime's own state is the process's, here as there.
std::size_t living_allocations = 0;
std::size_t allocations_left = kEndless;
}  // namespace

std::size_t allocations() { return living_allocations; }
void refuse_allocations_after(std::size_t count) { allocations_left = count; }

}  // namespace gradwire::emulation

using gradwire::emulation::allocations_left;
using gradwire::emulation::kEndless;
using gradwire::emulation::living_allocations;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    default: return "cudaErrorOfTheEmulation";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "invalid";
}

cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
  return ordinal == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

// Fresh memory is no zeros, and its end is the heap's, where a sanitizer sees what goes beyond.
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t) {
  if (allocations_left == 0) return cudaErrorMemoryAllocation;
  if (allocations_left != kEndless) --allocations_left;
  if (::posix_memalign(data, 256, bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xa5, bytes);
  ++living_allocations;
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t) {
  std::free(data);
  --living_allocations;
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return cudaMallocAsync(data, bytes, nullptr);
}
cudaError_t cudaFreeHost(void* data) { return cudaFreeAsync(data, nullptr); }
cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(dst, src, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = std::chrono::duration<float, std::milli>(to->at - from->at).count();
  return cudaSuccess;
}
