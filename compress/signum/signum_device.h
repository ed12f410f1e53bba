// signum on a CUDA device: payloads, momentum and votes are the host's bits.
#pragma once

#include <memory>
#include <string>

#include "gradwire/compressor.h"

namespace gradwire::cuda {

// As make_signum_coder() of signum_coder.h, for where.device; kUnsupported unless where.dtype is
// kF32. encode() and finish() wait for the stream to say what was found. Keeps two tensors of the
// gradient's size where it keeps a momentum.
Result<std::unique_ptr<Coder>> make_signum_coder(const std::string& name, double beta,
                                                 const Shape& shape,
                                                 const Compressor::Placement& where);

}  // namespace gradwire::cuda
