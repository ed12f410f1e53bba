// How a range of elements looks on the wire, for methods that work element by element.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Which elements are packed. With the seed it keys the dither, so the bytes survive any bucketing.
struct Slice {
  std::uint64_t step = 0;
  std::uint64_t tensor = 0;  // hash of the parameter's name
  int rank = 0;              // who packs
  int stage = 0;             // 0: the sender's encoding; 1: the owner's second one in sra
  std::int64_t first = 0;    // index of the first element within the tensor
};

// Packs slices of one tensor. Quantisation buckets start anew at each slice. Stateless between
// calls and safe to use from one thread at a time. `wire` never overlaps `src` or `dst`.
class WireFormat {
 public:
  virtual ~WireFormat() = default;
  // Exactly what pack() writes for so many elements in that stage; 0 for 0 elements.
  virtual std::size_t bytes(std::int64_t elems, int stage) const = 0;
  // Returns bytes(src.elems(), slice.stage). src: (m).
  virtual Result<std::size_t> pack(ConstTensorView src, const Slice& slice, ByteSpan wire,
                                   const Stream& stream) = 0;
  // dst = wire, or dst += wire. Bytes come from the network: kCorruptPayload on a wrong length or
  // an impossible scale, never undefined behaviour. dst: (m); `slice` as the packer named it.
  virtual Status unpack(ConstByteSpan wire, const Slice& slice, TensorView dst,
                        const Stream& stream) = 0;
  virtual Status unpack_add(ConstByteSpan wire, const Slice& slice, TensorView acc,
                            const Stream& stream) = 0;
};

}  // namespace gradwire
