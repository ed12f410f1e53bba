#include "tests/gpu/library/device_calls.h"

#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "device/cuda/memory_calls.h"
#include "device/cuda/stream.h"
#include "device/ops.h"
#include "tests/emulation/emulated_device.h"

namespace gradwire::library_calls {
namespace {

Device on(int ordinal) { return {MemorySpace::kCuda, ordinal}; }

struct Streams {
  std::mutex mutex;
  std::map<void*, cuda::OwnedStream> owned;
};
// Left to the end of the process, as streams that are destroyed there.
Streams& streams() {
  static auto* const all = new Streams;
  return *all;
}

}  // namespace
}  // namespace gradwire::library_calls

using namespace gradwire;
using namespace gradwire::library_calls;

size_t test_host_waits(void) { return emulation::points_asked(); }
size_t test_launches(int device) { return emulation::launches_on(device); }

void test_play_devices(int count) { emulation::play_devices(count); }

void* test_device_alloc(size_t bytes, int device) {
  auto memory = cuda::allocate_zeroed(bytes, on(device));
  return memory.has_value() ? memory.value() : nullptr;
}

void test_device_free(void* memory, int device) {
  cuda::release(static_cast<std::byte*>(memory), on(device));
}

void* test_stream_create(int device) {
  auto made = cuda::OwnedStream::create_apart(on(device));
  if (!made.has_value()) return nullptr;
  void* const native = made.value().stream().native;
  const std::lock_guard lock(streams().mutex);
  streams().owned.emplace(native, std::move(made).value());
  return native;
}

void test_stream_destroy(void* stream) {
  const std::lock_guard lock(streams().mutex);
  streams().owned.erase(stream);
}

void test_stream_hold(void* stream, int held) {
  if (held != 0) {
    emulation::hold(stream);
  } else {
    emulation::release(stream);
  }
}

int test_copy_to_device(void* to, const void* from, size_t bytes, int device, void* stream) {
  const Status copied =
      copy_bytes({static_cast<const std::byte*>(from), bytes}, Device{},
                 {static_cast<std::byte*>(to), bytes}, on(device), {on(device), stream});
  return copied.ok() ? 0 : -1;
}

int test_copy_to_host(void* to, const void* from, size_t bytes, int device, void* stream) {
  const Stream there{on(device), stream};
  const Status copied = copy_bytes({static_cast<const std::byte*>(from), bytes}, on(device),
                                   {static_cast<std::byte*>(to), bytes}, Device{}, there);
  return copied.ok() && cuda::synchronize(there).ok() ? 0 : -1;
}
