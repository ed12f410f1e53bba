// block_sparse on a CUDA device: payloads and means are the host's bits.
#pragma once

#include <memory>

#include "compress/block_sparse/block_coder.h"

namespace gradwire::cuda {

// As make_block_coder() of block_coder.h, for where.device. kUnsupported unless where.dtype is
// kF32, for codings of indices whose length hangs on them, by name, and for second stages that have
// no format on a device. encode() and absorb() wait for the stream.
Result<std::unique_ptr<Coder>> make_block_coder(const BlockOptions& options, const Shape& shape,
                                                const Compressor::Placement& where);

}  // namespace gradwire::cuda
