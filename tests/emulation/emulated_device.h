// A CUDA device that is the host, for tests: what can be set and asked of it.
#pragma once

#include <cstddef>

namespace gradwire::emulation {

// How many allocations live.
std::size_t allocations();
// The most bytes of pinned memory that have lived at a time.
std::size_t most_pinned_bytes();
// Those after the next `count` fail as on a device whose memory is out.
inline constexpr std::size_t kEndless = ~std::size_t{0};
void refuse_allocations_after(std::size_t count);

// From now on work that is enqueued on streams runs when the device comes to it (queues.h).
void run_later();
// That stream's work stays undone, as behind a long kernel, until it is released.
void hold(void* stream);
void release(void* stream);

}  // namespace gradwire::emulation
