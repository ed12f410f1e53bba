// Streams whose work becomes a CUDA graph instead of being run.
#pragma once

#include "gradwire/status.h"
#include "gradwire/stream.h"

namespace gradwire::cuda {

// Whether what is enqueued on `stream` now is captured. Errors of CUDA: of a capture that has
// failed already, too.
Result<bool> is_capturing(const Stream& stream);

// kUnsupported, naming `what`, where it is.
Status refuse_capture(const char* what, const Stream& stream);

}  // namespace gradwire::cuda
