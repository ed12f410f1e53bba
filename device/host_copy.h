// What tensors hold, where the host can read it, and the way back: for checkpoints, hashes, tests.
#pragma once

#include <vector>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// The bytes of a tensor: where they lie, or a copy of what is on a device, which is made after all
// work on streams that wait for CUDA's default stream. Of memory of the host, borrowed.
class HostCopy {
 public:
  static Result<HostCopy> of(ConstTensorView tensor);
  ConstByteSpan bytes() const { return there_.empty() ? borrowed_ : ConstByteSpan(there_); }

 private:
  ConstByteSpan borrowed_;
  std::vector<std::byte> there_;
};

// Waits until all that the stream was given has run; an error of that work is this call's.
// kTimedOut by the thread's DevicePatience. On the host there is nothing to wait for.
Status wait_for(const Stream& stream);

// The tensor's bytes become `from`, as many as it has, wherever it lies; done when it returns.
Status write_from_host(ConstByteSpan from, TensorView to);

}  // namespace gradwire
