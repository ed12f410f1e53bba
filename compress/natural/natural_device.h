// natural on a CUDA device: payload and values are the host's bits.
#pragma once

#include <memory>

#include "compress/natural/natural_kernels.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// For where.device; kUnsupported unless where.dtype is kF32. Encoding enqueues and returns; with
// error feedback, and where a payload may be corrupt, it waits for the stream to say what was
// found.
Result<std::unique_ptr<WireFormat>> make_natural_format(const NaturalKernel& kernel,
                                                        const Compressor::Placement& where);
Result<std::unique_ptr<WireFormat>> make_natural_format(const NaturalWindowKernel& kernel,
                                                        const Compressor::Placement& where);

}  // namespace gradwire::cuda
