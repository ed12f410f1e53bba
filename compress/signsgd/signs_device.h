// signsgd on a CUDA device: payload and values are the host's bits.
#pragma once

#include <memory>

#include "compress/signsgd/sign_formats.h"

namespace gradwire::cuda {

// As make_scaled_sign_format() and make_vote_format() of sign_formats.h, for where.device;
// kUnsupported unless where.dtype is kF32. They wait for the stream to say what was found.
Result<std::unique_ptr<WireFormat>> make_scaled_sign_format(std::int64_t bucket,
                                                            const Compressor::Placement& where);
Result<std::unique_ptr<VotingFormat>> make_vote_format(const Compressor::Placement& where);

}  // namespace gradwire::cuda
