// Streams whose work becomes a CUDA graph instead of being run.
#pragma once

#include "device/cuda/contexts.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"

namespace gradwire::cuda {

// Whether what is enqueued on `stream` now is captured. Errors of CUDA: of a capture that has
// failed already, too.
Result<bool> is_capturing(const Stream& stream);

// kUnsupported, naming `what`, where it is.
Status refuse_capture(const char* what, const Stream& stream);

// Whoever captures a stream, globally as CUDA calls it, forbids all threads what might have to wait
// for that: questions whether work is done, pinned memory. Of another stream's work they are
// harmless, and allowed to this thread while this lives. A SomeContext beside it.
class BesideCaptures {
 public:
  BesideCaptures();
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  SomeContext some_;
  int before_;  // a cudaStreamCaptureMode
};

}  // namespace gradwire::cuda
