// Error feedback on a CUDA device, around coders and of slices: what ef14.h, ef21.h and
// slice_feedback.h say, in the host's bits.
#pragma once

#include <memory>

#include "compress/error_feedback/ef21.h"
#include "compress/error_feedback/loco.h"
#include "compress/error_feedback/slice_feedback.h"
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
// As slice_feedback.h has it.
Result<std::unique_ptr<SliceFeedback>> make_slice_feedback(const FeedbackOptions& options,
                                                           const Shape& shape,
                                                           const Compressor::Placement& where,
                                                           int stage, const Stream& stream);

}  // namespace gradwire::cuda
