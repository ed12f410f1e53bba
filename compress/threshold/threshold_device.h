// threshold on a CUDA device: indices and values are the host's.
#pragma once

#include <cstdint>
#include <memory>

#include "compress/sparse/sparse_coding.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// Of elements whose keys (topk_arithmetic.h) are at least `low` >= 1. kUnsupported unless
// where.dtype is kF32, and for what PairsOnDevice does not take. Encoding waits for the stream, to
// hear how many there are; absorb() waits.
Result<std::unique_ptr<Coder>> make_threshold_coder(const SparseOptions& options, std::uint32_t low,
                                                    const Shape& shape,
                                                    const Compressor::Placement& where);

}  // namespace gradwire::cuda
