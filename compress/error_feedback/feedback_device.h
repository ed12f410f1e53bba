// Error feedback around coders on a CUDA device: what ef14.h and ef21.h say, in the host's bits.
#pragma once

#include <memory>

#include "compress/error_feedback/ef21.h"
#include "compress/error_feedback/loco.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// For where.device; kUnsupported unless where.dtype is kF32. State lies there, and state() names
// tensors there. Calls that look whether something is finite wait for the stream: begin() where the
// inner coder takes no feedback, and then finish(); of ef21 and loco both. Elements are named,
// their values not.
Result<std::unique_ptr<Coder>> make_ef14(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where, double scale);
Result<std::unique_ptr<Coder>> make_ef21(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where,
                                         const Ef21Options& options);
Result<std::unique_ptr<Coder>> make_loco(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where,
                                         const LocoOptions& options);

}  // namespace gradwire::cuda
