// The devices that the host plays: which one is a thread's, and whose memory is whose. What would
// run on another device than its memory, or be given to another's stream, is refused.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <initializer_list>

#include "tests/emulation/emulated_device.h"

namespace gradwire::emulation {

// From now on the thread is the device's own, which runs its work.
void serve_device(int device);
// While it lives.
class ServeDevice {
 public:
  explicit ServeDevice(int device);
  ~ServeDevice();
  ServeDevice(const ServeDevice&) = delete;
  ServeDevice& operator=(const ServeDevice&) = delete;

 private:
  int device_;  // before
  bool has_context_;
};
// As a call begins that needs a context: CUDA makes one on the thread's device.
void need_context();
// A stream's; of the default stream the thread's.
int device_of_stream(const CUstream_st* stream);

// From now on `peer` may use the memory of the device's pool.
void note_access(int device, int peer);
void note_memory(void* data, std::size_t bytes, int device);
void forget_memory(void* data);
// Negative for memory of the host.
int device_of_memory(const void* data);
// Whether the device has so many bytes more to give.
bool has_room(int device, std::size_t bytes);
// cudaSuccess where none of the addresses is in a device's memory, or one is in that of the
// stream's device.
cudaError_t check_stream(const CUstream_st* stream, std::initializer_list<const void*> addresses);
// cudaSuccess where the event is of the stream's device.
cudaError_t check_event(const CUevent_st* event, const CUstream_st* stream);

}  // namespace gradwire::emulation
