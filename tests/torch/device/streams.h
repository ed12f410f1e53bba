// The emulated CUDA devices as PyTorch's device type PrivateUse1: its streams and events are the
// emulator's, which run what they are given when the device comes to it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "device/cuda/stream.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"

namespace gradwire::emulated_torch {

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
inline constexpr int kDevices = 4;

// c10::Error with the text.
void need(const Status& status);
template <typename T>
T need(Result<T> result) {
  need(result.error());
  return std::move(result).value();
}

Device native(c10::Device device);

// The streams of the process: of each device number 0, the default one, and those of a pool. None
// of them waits for another, so that a wait that is forgotten is missed.
class Streams {
 public:
  static Streams& all();
  Stream native_of(const c10::Stream& stream);
  // Of the calling thread.
  c10::Stream current(c10::Device device) const;
  c10::Stream exchange(const c10::Stream& stream) const;
  // Of the pool of that priority, by turns. A device without a number is the thread's.
  c10::Stream next(c10::Device device, bool high);

 private:
  std::mutex mutex_;
  std::map<std::pair<int, c10::StreamId>, cuda::OwnedStream> owned_;
  std::map<std::pair<int, bool>, c10::StreamId> taken_;
};

// The calling thread's device.
int& current_device();

}  // namespace gradwire::emulated_torch
