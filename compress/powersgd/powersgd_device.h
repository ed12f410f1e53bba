// powersgd on a CUDA device.
#pragma once

#include <memory>

#include "compress/powersgd/powersgd_coder.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// The host's payloads, means and state, which lies on where.device. kUnsupported unless where.dtype
// is kF32. Waits for the stream: encode() of round 0 with feedback; absorb() of round 0, which
// hears whether P is finite and how dependent its columns are; finish(), which judges the sum of Q.
// The first Q is drawn by the host (at every step unless warm), and columns too close to dependent
// are made orthonormal there.
Result<std::unique_ptr<Coder>> make_powersgd_coder(const Shape& shape,
                                                   const PowerSgdOptions& options,
                                                   const Compressor::Placement& where);

}  // namespace gradwire::cuda
