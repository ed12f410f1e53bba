// dgc on a CUDA device: payloads, means, momentum and residual are the host's bits.
#pragma once

#include <memory>

#include "compress/dgc/dgc_coder.h"

namespace gradwire::cuda {

// As make_dgc_coder() of dgc_coder.h, for where.device. kUnsupported unless where.dtype is kF32,
// and for what PairsOnDevice does not take. encode(), absorb() and finish() wait for the stream.
Result<std::unique_ptr<Coder>> make_dgc_coder(const DgcOptions& options, const Shape& shape,
                                              const Compressor::Placement& where);

}  // namespace gradwire::cuda
