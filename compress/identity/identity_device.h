// none on a CUDA device: payload and values are the host's bits.
#pragma once

#include <memory>

#include "compress/identity/identity_format.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// For where.device; kUnsupported unless where.dtype is kF32. All enqueues and returns, but packing
// with error feedback, which waits for the stream to say whether what is left is finite.
Result<std::unique_ptr<ExactFormat>> make_exact_format(const Compressor::Placement& where);

}  // namespace gradwire::cuda
