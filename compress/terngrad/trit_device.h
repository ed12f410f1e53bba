// terngrad:shared=false on a CUDA device: payload and values are the host's bits.
#pragma once

#include <memory>

#include "compress/terngrad/trit_kernel.h"

namespace gradwire::cuda {

// As make_kernel_format() of the kernel, for where.device; kUnsupported unless where.dtype is kF32.
// Calls that may find something to refuse wait for the stream: decode, and encode with feedback.
Result<std::unique_ptr<WireFormat>> make_trit_format(const TritKernel& kernel,
                                                     const Compressor::Placement& where);

}  // namespace gradwire::cuda
