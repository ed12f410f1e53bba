// mx on a CUDA device: payload and values are the host's bits.
#pragma once

#include <memory>

#include "compress/mx/mx_kernels.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// For where.device; kUnsupported unless where.dtype is kF32. Encoding enqueues and returns; with
// error feedback, and in decoding, it waits for the stream to say what was found.
Result<std::unique_ptr<WireFormat>> make_mx_format(const MxKernel& kernel,
                                                   const Compressor::Placement& where);

}  // namespace gradwire::cuda
