// How often this thread has waited for a stream of a device. The program is linked with --wrap of
// cuda::synchronize(); one of its files includes this.
#pragma once

#include <cstddef>

#include "device/cuda/memory_calls.h"

namespace gradwire::gpu {

inline thread_local std::size_t waits = 0;

}  // namespace gradwire::gpu

// cuda::synchronize(), and what the linker puts in its place.
gradwire::Status real_synchronize(const gradwire::Stream& stream) asm(
    "__real__ZN8gradwire4cuda11synchronizeERKNS_6StreamE");
gradwire::Status counted_synchronize(const gradwire::Stream& stream) asm(
    "__wrap__ZN8gradwire4cuda11synchronizeERKNS_6StreamE");
gradwire::Status counted_synchronize(const gradwire::Stream& stream) {
  ++gradwire::gpu::waits;
  return real_synchronize(stream);
}
