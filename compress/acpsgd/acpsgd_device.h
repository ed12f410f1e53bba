// acpsgd on a CUDA device.
#pragma once

#include <memory>

#include "compress/acpsgd/acpsgd_coder.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// The host's payloads, means and state, which lies on where.device. kUnsupported unless where.dtype
// is kF32. Waits for the stream: begin(), which hears how dependent the basis' columns are, and
// finish() (of dense tensors absorb()), which judge what was received. The first P and Q are drawn
// by the host, and columns too close to dependent are made orthonormal there.
Result<std::unique_ptr<Coder>> make_acpsgd_coder(const Shape& shape, const AcpSgdOptions& options,
                                                 const Compressor::Placement& where);

}  // namespace gradwire::cuda
