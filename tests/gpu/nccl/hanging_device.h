// A device that from some point on passes no event any more. Of one source of a program, which is
// linked with --wrap=_Z14cudaEventQueryP10CUevent_st.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "gradwire/tensor.h"

namespace gradwire::gpu {

inline std::atomic<bool> device_hangs{false};

// Counts the ranks that have what they need of the device, memory above all, which is there when it
// has been filled; it hangs when all have come, or 10 s later.
inline void hang_when_all_are(std::atomic<int>& there, int ranks) {
  ++there;
  const Deadline until = deadline_in(10);
  while (there < ranks && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  device_hangs = true;
}

}  // namespace gradwire::gpu

// The emulated runtime's cudaEventQuery, and what the linker puts in its place.
int real_query(void* event) asm("__real__Z14cudaEventQueryP10CUevent_st");
int query(void* event) asm("__wrap__Z14cudaEventQueryP10CUevent_st");
int query(void* event) {
  constexpr int kNotReady = 600;
  return gradwire::gpu::device_hangs ? kNotReady : real_query(event);
}
