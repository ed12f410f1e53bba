// lossless on a CUDA device: payloads and values are the host's bits.
#pragma once

#include <memory>

#include "gradwire/compressor.h"

namespace gradwire::cuda {

// kUnsupported unless where.dtype is kF32, and for tensors whose payload may have 2^32 bytes.
// encode() and finish() wait for the stream.
Result<std::unique_ptr<Coder>> make_lossless_coder(const Shape& shape,
                                                   const Compressor::Placement& where);

}  // namespace gradwire::cuda
