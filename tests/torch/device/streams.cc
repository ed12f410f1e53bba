#include "tests/torch/device/streams.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <thread>

#include "device/cuda/memory_calls.h"
#include "tests/torch/device/memory.h"

namespace gradwire::emulated_torch {
namespace {

constexpr c10::StreamId kPool = 8;  // streams of a device and a priority, beside the default one

thread_local int thread_device = 0;
thread_local std::map<int, c10::StreamId> thread_streams;

c10::Device numbered(c10::Device device) {
  if (device.has_index()) return device;
  return {kType, static_cast<c10::DeviceIndex>(thread_device)};
}

cuda::Event& event_of(void* event) { return *static_cast<cuda::Event*>(event); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, static_cast<c10::DeviceIndex>(std::exchange(thread_device, device.index()))};
  }
  c10::Device getDevice() const override {
    return {kType, static_cast<c10::DeviceIndex>(thread_device)};
  }
  void setDevice(c10::Device device) const override { thread_device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    thread_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device device) const override {
    return Streams::all().current(device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, numbered(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return Streams::all().next(device, high);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return Streams::all().next(device, priority < 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return Streams::all().exchange(stream);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return Streams::all().native_of(stream).native;
  }
  bool queryStream(const c10::Stream& stream) const override {
    cuda::Event end = need(cuda::Event::create(native(stream.device())));
    need(end.record(Streams::all().native_of(stream)));
    return need(end.passed());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    need(cuda::synchronize(Streams::all().native_of(stream)));
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    for (c10::StreamId id = 0; id <= 2 * kPool; ++id) {
      synchronizeStream(c10::Stream(c10::Stream::UNSAFE, {kType, index}, id));
    }
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new cuda::Event(need(cuda::Event::create(native(stream.device()))));
    }
    need(event_of(*event).record(Streams::all().native_of(stream)));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) need(event_of(event).before(Streams::all().native_of(stream)));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || need(event_of(event).passed());
  }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<cuda::Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    used_on(data, stream);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

void need(const Status& status) { TORCH_CHECK(status.ok(), std::string(status.message())); }

Device native(c10::Device device) { return {MemorySpace::kCuda, device.index()}; }

int& current_device() { return thread_device; }

// Left to the end of the process, as streams that are destroyed there.
Streams& Streams::all() {
  static auto* const streams = new Streams;
  return *streams;
}

Stream Streams::native_of(const c10::Stream& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::pair<int, c10::StreamId> key(stream.device_index(), stream.id());
  const auto found = owned_.find(key);
  if (found != owned_.end()) return found->second.stream();
  auto made = need(cuda::OwnedStream::create_apart(native(stream.device())));
  return owned_.emplace(key, std::move(made)).first->second.stream();
}

c10::Stream Streams::current(c10::Device device) const {
  const c10::Device there = numbered(device);
  return c10::Stream(c10::Stream::UNSAFE, there, thread_streams[there.index()]);
}

c10::Stream Streams::exchange(const c10::Stream& stream) const {
  const c10::Stream before = current(stream.device());
  thread_streams[stream.device_index()] = stream.id();
  return before;
}

c10::Stream Streams::next(c10::Device device, bool high) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const c10::Device there = numbered(device);
  const c10::StreamId turn = taken_[{there.index(), high}]++ % kPool;
  return c10::Stream(c10::Stream::UNSAFE, there, turn + 1 + (high ? kPool : 0));
}

}  // namespace gradwire::emulated_torch
