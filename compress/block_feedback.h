// Error feedback around any format that can be cut into parts, without passes of its own over
// memory: a block's sum, its payload and what that decodes to lie in the nearest cache.
#pragma once

#include <string_view>

#include "gradwire/wire_format.h"

namespace gradwire {

// Whether pack_in_blocks() is worth it: parts of a slice are as short as a cache wants them.
bool fits_in_blocks(const WireFormat& format, int stage);

// WireFormat::pack_with_feedback() by the format's own pack() and unpack() of one block after the
// other, the blocks being cut at its seams. Memory is read and written once: gradient and residual
// in, payload and next out. kInvalidArgument, too, where next is not finite; errors begin with
// `method`.
Result<std::size_t> pack_in_blocks(std::string_view method, WireFormat& format, DType dtype,
                                   ConstTensorView src, const Feedback& feedback,
                                   const Slice& slice, ByteSpan wire, const Stream& stream);

// out = gradient + residual, all of one size and of type kF32 or kF64.
void put_corrected(ConstTensorView grad, const Feedback& feedback, TensorView out);

}  // namespace gradwire
