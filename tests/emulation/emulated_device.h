// CUDA devices that are the host, for tests: what can be set and asked of them.
#pragma once

#include <chrono>
#include <cstddef>

namespace gradwire::emulation {

// How many there are from now on; none is as where there is no driver. Else one.
void play_devices(int count);
// How many kernels have been launched on a device, and how many bytes of memory it has given.
std::size_t launches_on(int ordinal);
std::size_t bytes_given_by(int ordinal);
// How many calls were refused because their memory, stream and thread were not of one device.
std::size_t calls_on_a_wrong_device();

// Whether some thread has had a context there, since they were forgotten last.
bool has_context_on(int ordinal);
void forget_contexts();
// Whether one device's kernels may use the other's memory.
bool may_use_memory_of(int peer, int ordinal);
// Whether memory of pools can be opened by other processes, as CUDA's cannot; else it can.
void give_pools_handles(bool handles);

// How many allocations live.
std::size_t allocations();
// How many were freed by way of the default stream while work of streams that it does not wait for
// had not begun.
std::size_t frees_before_their_time();
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
// The same for all streams that do not wait for the default stream, present and future ones.
void hold_apart(bool held);
// How many pieces of work on those streams have not begun.
std::size_t pending_apart();
// The device takes so long before each piece of enqueued work; 0: it does not tarry.
void tarry(std::chrono::milliseconds before_each);

// The creation of events after the next `count` fails; so do copies.
void refuse_events_after(std::size_t count);
void refuse_copies_after(std::size_t count);

}  // namespace gradwire::emulation
