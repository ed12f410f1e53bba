// CUDA devices that are the host, for tests: what can be set and asked of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

namespace gradwire::emulation {

// How many there are from now on; none is as where there is no driver. Else one.
void play_devices(int count);
// How many kernels have been launched on a device, and how many bytes of memory it has given.
std::size_t launches_on(int ordinal);
std::size_t bytes_given_by(int ordinal);
// Whether the host waits for it or looks at it now and then: how many recorded events it has asked
// for, each once.
std::size_t points_asked();
// While it lives, what this thread asks for does not count.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
  static bool here();
};
// How many calls were refused because their memory, stream and thread were not of one device.
std::size_t calls_on_a_wrong_device();

// The device of the calling thread, and of a stream (a cudaStream_t; null: the thread's).
int current_device();
int device_of(void* stream);
// Enqueues work on a stream, as a kernel is; it may wait for what another stream's work does.
void run_on(void* stream, std::function<void()> work);

// Whether some thread has had a context there, since they were forgotten last.
bool has_context_on(int ordinal);
void forget_contexts();
// Whether one device's kernels may use the other's memory.
bool may_use_memory_of(int peer, int ordinal);
// Whether memory of pools can be opened by other processes, as CUDA's cannot; else it can.
void give_pools_handles(bool handles);

// Whether an access of the host to device memory, outside a copy, ends the program with a message.
bool guards_device_memory();
// Before any memory is taken: none does, as where memory of a GPU is mapped for the host.
void let_host_touch_devices();
// How many allocations live when streams have run what they were given, those that are held aside.
std::size_t allocations();
// How many were freed by way of the default stream while work of streams that it does not wait for
// was held; and how many of pinned memory while a copy from or to it was enqueued.
std::size_t frees_before_their_time();
// The most bytes of pinned memory that have lived at a time.
std::size_t most_pinned_bytes();
// Those after the next `count` fail as on a device whose memory is out.
inline constexpr std::size_t kEndless = ~std::size_t{0};
void refuse_allocations_after(std::size_t count);
// From now on the thread's device gives `more` bytes beside those that live now, kEndless: any;
// what is freed is there again when its stream has come to that.
void limit_memory(std::size_t more);

// That stream's work stays undone, as behind a long kernel, until it is released.
void hold(void* stream);
void release(void* stream);
// The same for all streams that do not wait for the default stream, present and future ones.
void hold_apart(bool held);
// How many pieces of work on those streams have not begun; whether some are held.
std::size_t pending_apart();
bool holds_work_apart();
// The device takes so long before each piece of enqueued work; 0: it does not tarry.
void tarry(std::chrono::milliseconds before_each);

// Whether streams are refused waits for a word of memory, as by a driver that has no such call.
void refuse_word_waits(bool refused);
bool word_waits_are_refused();

// The creation of events after the next `count` fails; so do copies.
void refuse_events_after(std::size_t count);
void refuse_copies_after(std::size_t count);
// Whether every copy from and to memory of the host that is not pinned waits for its stream, as
// CUDA's may; else one of two does, of those whose stream waits for no held one.
void wait_in_copies(bool always);

}  // namespace gradwire::emulation
