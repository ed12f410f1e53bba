// Methods whose ranks share scales, on a CUDA device: payloads, own and mean are the host's bits.
#pragma once

#include <cstdint>
#include <memory>

#include "compress/cuda/scale_of.h"
#include "compress/shared_scale/level_arithmetic.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// What a Grid of shared_scale_rounds.h is to kernels.
struct SharedScaleGrid {
  const char* name;
  std::int64_t bucket;  // 0: the tensor
  int most;             // codes are 0 ... most
  ScaleOf scale;
  double clip = 0;            // root mean squares; of a transform's elements
  bool clips_to_own = false;  // elements are clipped at the rank's own scale
  bool hadamard = false;      // of buckets that are powers of two; codes are cells of
  CellTable cells = {};
};

// As make_shared_scale_coder() of shared_scale_coder.h, for where.device; kUnsupported unless
// where.dtype is kF32. encode() of round 0 with feedback, absorb() of round 0 and finish() wait for
// the stream to say what was found.
Result<std::unique_ptr<Coder>> make_shared_scale_coder(const SharedScaleGrid& grid,
                                                       const Shape& shape,
                                                       const Compressor::Placement& where);

}  // namespace gradwire::cuda
