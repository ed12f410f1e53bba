// The wire formats of signsgd over slices; layouts in signsgd.h.
#pragma once

#include <cstdint>
#include <memory>

#include "gradwire/compressor.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// Signs with a mean |v| per `bucket` elements; 0: one for the whole slice. Both stages alike.
std::unique_ptr<WireFormat> make_scaled_sign_format(DType dtype, std::int64_t bucket);

// Signs alone, decoding to -1 or +1. Stage 1, for sums of signs, is two bits a vote.
std::unique_ptr<WireFormat> make_vote_format(DType dtype);

// The same with a bit for every block of 256 elements: all of it is zero, and decodes to zero.
std::unique_ptr<WireFormat> make_zero_sign_format(DType dtype);

// A coder over the vote format: own is -1 or +1, mean the sign of the sum of all ranks' signs.
// kUnsupported from 2^15 ranks on.
Result<std::unique_ptr<Coder>> make_vote_coder(const Shape& shape,
                                               const Compressor::Placement& where);

}  // namespace gradwire
