// The wire formats of signsgd over slices; layouts in signsgd.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gradwire/compressor.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// Signs with a mean |v| per `bucket` elements; 0: one for the whole slice. Both stages alike.
std::unique_ptr<WireFormat> make_scaled_sign_format(DType dtype, std::int64_t bucket);

// What the coder of a vote wants of its wire format, on the host and on devices.
class VotingFormat : public WireFormat {
 public:
  // Of a stage-0 payload of `elems` elements and the right length: kCorruptPayload if unused bits
  // are set, unless that is count()'s to find.
  virtual Status check_signs(ConstByteSpan payload, std::int64_t elems) const = 0;
  // mean[i] = sign of the sum over payloads of their signs, 0 on a tie. Fewer than 2^15 payloads.
  virtual Status count(std::span<const ConstByteSpan> payloads, TensorView mean,
                       const Stream& stream) = 0;
};

// Signs alone, decoding to -1 or +1. Stage 1, for sums of signs, is two bits a vote.
std::unique_ptr<VotingFormat> make_vote_format(DType dtype);

// The same with a bit for every block of 256 elements: all of it is zero, and decodes to zero.
std::unique_ptr<WireFormat> make_zero_sign_format(DType dtype);

// A coder over the vote format of `where`: own is -1 or +1, mean the sign of the sum of all ranks'
// signs. kUnsupported from 2^15 ranks on.
Result<std::unique_ptr<Coder>> make_vote_coder(std::unique_ptr<VotingFormat> votes,
                                               const Shape& shape,
                                               const Compressor::Placement& where);

}  // namespace gradwire
