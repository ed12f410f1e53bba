// onebit on a CUDA device: payload and values are the host's bits.
#pragma once

#include <memory>

#include "compress/onebit/onebit_kernels.h"

namespace gradwire::cuda {

// As make_kernel_format() of the kernel, for where.device; kUnsupported unless where.dtype is kF32.
// It waits for the stream to say what was found.
Result<std::unique_ptr<WireFormat>> make_onebit_format(const OnebitKernel& kernel,
                                                       const Compressor::Placement& where);

}  // namespace gradwire::cuda
