// topk on a CUDA device: indices and values are the host's.
#pragma once

#include <memory>

#include "compress/sparse/sparse_coding.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

enum class TopkWay : std::uint8_t {
  kSampled,  // through candidates above a sampled bound, where there are elements enough
  kPlain     // by counting all elements: slower, and what kSampled falls back on
};

// Of the k largest; 0 < k <= elements where there are any. kUnsupported unless where.dtype is kF32,
// and for what PairsOnDevice does not take. Encoding waits for the stream where a sample was used
// (to hear whether it misled) or error feedback wants to know that all is finite; absorb() waits.
Result<std::unique_ptr<Coder>> make_topk_coder(const SparseOptions& options, std::size_t k,
                                               const Shape& shape,
                                               const Compressor::Placement& where,
                                               TopkWay way = TopkWay::kSampled);

}  // namespace gradwire::cuda
