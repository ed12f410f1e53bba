// What host code asks of CUDA's memory, without CUDA's headers: declared in every build, defined
// where kHaveCuda holds.
#pragma once

#include <cstddef>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire::cuda {

// At least one byte, of device memory (of a pool of gradwire's own, which keeps what is freed, up
// to an eighth of the device) or (kPinnedHost) host memory that devices reach; 64-byte aligned and
// zeroed when the call returns. Free it with release().
Result<std::byte*> allocate_zeroed(std::size_t bytes, Device device);
// Of a device in the order of the default stream: work that was enqueued before on streams that
// wait for it, as all of gradwire's do, still has the memory. For others the caller waits first.
// Where CUDA refuses that order now, since such a stream is captured, it is freed with another.
void release(std::byte* data, Device device) noexcept;

// Other devices of this process that can may use memory of this one that allocate_zeroed() gives,
// has given and will.
Status let_peers_reach(Device device);

// Enqueues dst = src; the places may be any. Both live until the stream has run it. With both on
// the host it is done when the call returns.
Status copy(const std::byte* src, Device src_device, std::byte* dst, Device dst_device,
            std::size_t bytes, const Stream& stream);

// Waits until all work of `stream` has run, as long as this thread's DevicePatience says
// (kTimedOut, naming the device; pinned memory that is freed after that lives on until the work has
// run); an error of that work is this call's. kUnsupported where the stream is captured.
Status synchronize(const Stream& stream);

// Makes `device` the calling thread's while it lives; then the one before is again, or none, where
// CUDA had not been called. Threads that work for one device keep one for their life. Of the host:
// changes nothing.
class OnDevice {
 public:
  explicit OnDevice(Device device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  // kInvalidArgument when there is no such device, kUnsupported when there is none at all.
  const Status& status() const { return status_; }

 private:
  void* context_ = nullptr;  // the driver's, of before
  bool changed_ = false;
  Status status_;
};

}  // namespace gradwire::cuda
