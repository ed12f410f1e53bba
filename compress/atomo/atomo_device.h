// atomo on a CUDA device.
#pragma once

#include <memory>

#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// The host's payloads and means. kUnsupported unless where.dtype is kF32. Singular vectors are the
// host's work: encode() fetches the matrix, waits for the stream, and puts the payload there.
// absorb() waits, too, to hear whether what was received is sound. Atoms are added up on the
// device. Takes pinned memory of the matrix' size and of the largest payload's.
Result<std::unique_ptr<Coder>> make_atomo_coder(const Shape& shape, double budget,
                                                const Compressor::Placement& where);

}  // namespace gradwire::cuda
