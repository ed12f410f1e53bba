#include "tests/emulation/devices.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "device/cuda/driver.h"
#include "tests/emulation/emulated_device.h"
#include "tests/emulation/emulated_launch.h"
#include "tests/emulation/queues.h"

namespace gradwire::emulation {
namespace {

constexpr int kNobodys = -1;

std::atomic<int> count = 1;
std::atomic<std::size_t> refused = 0;
thread_local int current = 0;
thread_local bool has_context = false;
std::atomic<bool> pools_have_handles = true;
std::atomic<std::size_t> room = kEndless;  // of each device

cudaError_t refuse(cudaError_t error) {
  ++refused;
  return error;
}

class Devices {
 public:
  // Left to the end of the process, as memory that is freed there.
  static Devices& all() {
    static auto* const devices = new Devices;
    return *devices;
  }
  void note(const void* data, std::size_t bytes, int device) {
    const std::lock_guard lock(mutex_);
    blocks_[address_of(data)] = {bytes, device};
    given_[device] += bytes;
    living_[device] += bytes;
  }
  void forget(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(address_of(data));
    if (found == blocks_.end()) return;
    living_[found->second.device] -= found->second.bytes;
    blocks_.erase(found);
  }
  std::size_t living(int device) {
    const std::lock_guard lock(mutex_);
    return living_[device];
  }
  int of(const void* data) {
    const std::lock_guard lock(mutex_);
    auto next = blocks_.upper_bound(address_of(data));
    if (next == blocks_.begin()) return kNobodys;
    const auto& [begin, block] = *--next;
    return address_of(data) - begin < block.bytes ? block.device : kNobodys;
  }
  void note_launch(int device) {
    const std::lock_guard lock(mutex_);
    ++launches_[device];
  }
  void note_context(int device) {
    const std::lock_guard lock(mutex_);
    contexts_.insert(device);
  }
  bool has_context(int device) {
    const std::lock_guard lock(mutex_);
    return contexts_.count(device) != 0;
  }
  void note_access(int device, int peer) {
    const std::lock_guard lock(mutex_);
    access_.insert({device, peer});
  }
  bool may_use(int peer, int device) {
    const std::lock_guard lock(mutex_);
    return access_.count({device, peer}) != 0;
  }
  void forget_contexts() {
    const std::lock_guard lock(mutex_);
    contexts_.clear();
    access_.clear();
  }
  std::size_t launches(int device) {
    const std::lock_guard lock(mutex_);
    return launches_[device];
  }
  std::size_t given(int device) {
    const std::lock_guard lock(mutex_);
    return given_[device];
  }

 private:
  struct Block {
    std::size_t bytes = 0;
    int device = 0;
  };
  static std::uintptr_t address_of(const void* data) {
    return reinterpret_cast<std::uintptr_t>(data);
  }
  std::mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;
  std::map<int, std::size_t> given_;
  std::map<int, std::size_t> living_;  // bytes
  std::map<int, std::size_t> launches_;
  std::set<int> contexts_;
  std::set<std::pair<int, int>> access_;
};

}  // namespace

void play_devices(int how_many) {
  count = how_many;
  Devices::all().forget_contexts();
}
std::size_t launches_on(int ordinal) { return Devices::all().launches(ordinal); }
std::size_t bytes_given_by(int ordinal) { return Devices::all().given(ordinal); }
std::size_t calls_on_a_wrong_device() { return refused; }

bool has_context_on(int ordinal) { return Devices::all().has_context(ordinal); }
bool may_use_memory_of(int peer, int ordinal) { return Devices::all().may_use(peer, ordinal); }
void note_access(int device, int peer) { Devices::all().note_access(device, peer); }
void forget_contexts() { Devices::all().forget_contexts(); }
void give_pools_handles(bool handles) { pools_have_handles = handles; }

int current_device() { return current; }
void serve_device(int device) {
  current = device;
  has_context = true;
}
void need_context() {
  if (has_context) return;
  has_context = true;
  Devices::all().note_context(current);
}
ServeDevice::ServeDevice(int device) : device_(current), has_context_(has_context) {
  serve_device(device);
}
ServeDevice::~ServeDevice() {
  current = device_;
  has_context = has_context_;
}
int device_of(void* stream) { return device_of_stream(static_cast<CUstream_st*>(stream)); }
int device_of_stream(const CUstream_st* stream) {
  return stream == nullptr ? current : stream->queue->device;
}

void note_memory(void* data, std::size_t bytes, int device) {
  Devices::all().note(data, bytes, device);
}
void forget_memory(void* data) { Devices::all().forget(data); }
int device_of_memory(const void* data) { return Devices::all().of(data); }
bool has_room(int device, std::size_t bytes) {
  const std::size_t all = room;
  return all == kEndless || Devices::all().living(device) + bytes <= all;
}
void limit_memory(std::size_t more) {
  room = more == kEndless ? kEndless : Devices::all().living(current) + more;
}

cudaError_t check_stream(const CUstream_st* stream, std::initializer_list<const void*> addresses) {
  bool anybodys = false;
  for (const void* const address : addresses) {
    const int device = Devices::all().of(address);
    if (device == device_of_stream(stream)) return cudaSuccess;
    anybodys = anybodys || device != kNobodys;
  }
  return anybodys ? refuse(cudaErrorInvalidValue) : cudaSuccess;
}

cudaError_t check_event(const CUevent_st* event, const CUstream_st* stream) {
  const bool fits = event->device == device_of_stream(stream);
  return fits ? cudaSuccess : refuse(cudaErrorInvalidResourceHandle);
}

cudaError_t begin_launch(cudaStream_t stream) {
  need_context();
  if (device_of_stream(stream) != current) return refuse(cudaErrorInvalidResourceHandle);
  Devices::all().note_launch(current);
  return cudaSuccess;
}

}  // namespace gradwire::emulation

// The driver. A context is its device's number, from 1 on.
namespace gradwire::cuda {

void* current_context() {
  if (!emulation::has_context) return nullptr;
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(emulation::current) + 1);
}
void set_current_context(void* context) {
  emulation::has_context = context != nullptr;
  emulation::current =
      context == nullptr ? 0 : static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 1;
}
bool has_ipc_handle(const void*) { return emulation::pools_have_handles; }
int device_of_memory(const void* data) { return emulation::device_of_memory(data); }

}  // namespace gradwire::cuda

cudaError_t cudaGetDeviceCount(int* how_many) {
  *how_many = gradwire::emulation::count;
  return *how_many == 0 ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = gradwire::emulation::current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
  const int there = gradwire::emulation::count;
  if (there == 0) return cudaErrorNoDevice;
  if (ordinal < 0 || ordinal >= there) return cudaErrorInvalidDevice;
  gradwire::emulation::has_context = false;
  gradwire::emulation::current = ordinal;
  gradwire::emulation::need_context();
  return cudaSuccess;
}
