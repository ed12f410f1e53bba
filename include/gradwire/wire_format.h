// How a range of elements looks on the wire, for methods that work element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

// One of equally long slices that are added up: values, or if those are empty, what was packed of
// the slice that is named.
struct Addend {
  ConstTensorView values;
  ConstByteSpan wire;
  Slice slice;
};

// Error feedback as part of a coder's own passes over memory.
//
// What is compressed is p = gradient + residual, and next = p - scale * own is left for the next
// step, where own is what the payload decodes to. Sums, products and differences are rounded one by
// one in the gradient's type, so that results are the bits that separate passes give. All tensors
// have the gradient's shape and dtype; next overlaps nothing.
struct Feedback {
  ConstTensorView residual;  // never written: an aborted step leaves it as it was
  TensorView next;           // unspecified until the step's end
  double scale = 1;
};

// Packs slices of one tensor. Quantisation buckets start anew at each slice. Stateless between
// calls, but for turn_to(), and safe to use from one thread at a time. `wire` never overlaps `src`
// or `dst`.
class WireFormat {
 public:
  virtual ~WireFormat() = default;
  // For methods one of whose keys follows the step: bytes(), sections() and all other calls are
  // about `step` from now on (before the first turn_to(): step 0), and slices name the same step.
  // Returns whether lengths may differ from step to step; false, and nothing happens, of all other
  // methods.
  virtual bool turn_to(std::uint64_t /*step*/) { return false; }
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

  // The same at all steps: where a slice may be cut so that several threads pack it, or unpack it,
  // part by part: at multiples of seam() elements from its first. Each section of the whole's
  // payload is then the parts' one after another, and values and residuals are the same bits. 0:
  // nowhere. With Exchange::kAllGather it also says that Compressor::open()'s payload is the slice
  // of the whole tensor, gathered and averaged.
  virtual std::int64_t seam(int /*stage*/) const { return 0; }
  // The lengths in bytes of a payload's sections, in order; they add up to bytes().
  virtual std::vector<std::size_t> sections(std::int64_t elems, int stage) const {
    return {bytes(elems, stage)};
  }

  // Whether pack_with_feedback() is offered: pack() of src + residual that also writes next, in one
  // pass over memory. The residual's and next's elements are src's. kInvalidArgument, naming the
  // element, unless src + residual is finite; next is finite then.
  virtual bool takes_feedback() const { return false; }
  virtual Result<std::size_t> pack_with_feedback(ConstTensorView /*src*/,
                                                 const Feedback& /*feedback*/,
                                                 const Slice& /*slice*/, ByteSpan /*wire*/,
                                                 const Stream& /*stream*/) {
    return Status(Code::kUnsupported, "this wire format packs without error feedback only");
  }

  // Whether fold() is offered: packs the sum of the addends, from left to right, in one pass over
  // memory: the bytes that unpack() or a copy of the first, unpack_add() or an addition of the
  // others, and pack() give. kCorruptPayload as of unpack(), saying which addend (from 0).
  virtual bool folds() const { return false; }
  virtual Result<std::size_t> fold(std::span<const Addend> /*addends*/, std::int64_t /*elems*/,
                                   const Slice& /*sum*/, ByteSpan /*wire*/,
                                   const Stream& /*stream*/) {
    return Status(Code::kUnsupported, "this wire format adds up element by element only");
  }
};

}  // namespace gradwire
