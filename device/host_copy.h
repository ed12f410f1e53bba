// What tensors hold, where the host can read it, and the way back: for checkpoints, hashes, tests.
#pragma once

#include <vector>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// The bytes of a tensor: where they lie, or a copy of what is on a device, which is made after all
// work on streams that wait for CUDA's default stream, or, where a stream of the device is given,
// after that one's alone. Of memory of the host, borrowed.
class HostCopy {
 public:
  static Result<HostCopy> of(ConstTensorView tensor);
  static Result<HostCopy> of(ConstTensorView tensor, const Stream& stream);
  ConstByteSpan bytes() const { return there_.empty() ? borrowed_ : ConstByteSpan(there_); }

 private:
  ConstByteSpan borrowed_;
  std::vector<std::byte> there_;
};

// Waits until all that the stream was given has run; an error of that work is this call's.
// kTimedOut by the thread's DevicePatience. On the host there is nothing to wait for.
Status wait_for(const Stream& stream);

// The tensor's bytes become `from`, as many as it has, wherever it lies; done when it returns.
// After what HostCopy::of() waits for.
Status write_from_host(ConstByteSpan from, TensorView to);
Status write_from_host(ConstByteSpan from, TensorView to, const Stream& stream);

}  // namespace gradwire
