// What was waited for in vain.
#pragma once

#include <cstddef>

#include "device/cuda/stream.h"

namespace gradwire::cuda {

// A point that somebody has given up waiting for. Any thread.
void give_up_on(Event point);

// Frees pinned memory: now, or when the device has passed all points that somebody gave up waiting
// for, since what is before them may read and write it. That is looked at when memory is freed
// again; what is late for ever keeps it. Any thread.
void free_pinned(std::byte* data) noexcept;

// Frees a device's memory in the order of its default stream. Where that is refused (a stream that
// waits for it is captured) it is tried again when memory is freed again. Any thread.
void free_in_order(std::byte* data, Device device) noexcept;

}  // namespace gradwire::cuda
