// The Coder that every elementwise method gets for nothing: its WireFormat over the whole tensor,
// payloads gathered.
#pragma once

#include <memory>

#include "gradwire/coder.h"
#include "gradwire/compressor.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// One round of kAllGather. encode packs the tensor as the slice {step, where.tensor, where.rank,
// stage 0, first 0}; finish adds what all ranks' payloads unpack to, in rank order, and multiplies
// once by 1/size. own is what this rank's payload unpacks to. No state between steps.
// Errors: kInvalidArgument for tensors other than (shape, where.dtype), kCorruptPayload naming the
// rank whose payload is bad (its length in absorb, its contents in finish).
std::unique_ptr<Coder> make_slice_coder(std::unique_ptr<WireFormat> format, const Shape& shape,
                                        const Compressor::Placement& where);

}  // namespace gradwire
