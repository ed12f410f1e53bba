// WireFormat: the payload of a slice of a tensor, for methods that encode element by element. From
// it gradwire derives the coder, error feedback and every aggregation mode of a method.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Which elements are packed, and when. Together with the seed it keys the random numbers of
// stochastic rounding, so the payload does not depend on how tensors share buckets.
struct Slice {
  std::uint64_t step = 0;    // training step, counted from 0
  std::uint64_t tensor = 0;  // hash of the parameter's name
  int rank = 0;              // the rank that packs
  int stage = 0;             // 0: a rank's own encoding; 1: in sra, the shard owner's encoding of
                             // the sum
  std::int64_t first = 0;    // index of the slice's first element in the tensor
};

// One term of a sum of slices of equal length: `values`, or, if that is empty, the payload `wire`
// that was packed for `slice`. All are borrowed.
struct Addend {
  ConstTensorView values;  // (m), uncompressed; may be empty
  ConstByteSpan wire;      // a payload, used if `values` is empty
  Slice slice;             // as the rank that packed `wire` named it
};

// Error feedback inside an encoding pass: compresses p = gradient + residual and leaves next = p -
// scale * own for the next step, where `own` is what the payload decodes to. Each sum, product and
// difference is rounded in the gradient's type, so that results equal those of separate passes bit
// for bit. Both tensors have the gradient's shape and element type and are lent until the step's
// end; `next` overlaps no other tensor. Source: Seide, Fu, Droppo, Li, Yu, "1-bit stochastic
// gradient descent", Interspeech 2014; Karimireddy, Rebjock, Stich, Jaggi, "Error feedback fixes
// SignSGD", ICML 2019, algorithm 1.
struct Feedback {
  ConstTensorView residual;  // read only, so that a failed step leaves it as it was
  TensorView next;           // the new residual; unspecified until the step has ended
  double scale = 1;          // factor of the decoded payload, a ratio: 0 < scale <= 1
};

// Packs and unpacks slices of one tensor. Blocks (elements that share a scale) start anew at the
// start of each slice. Keeps nothing between calls except the step of turn_to(). `wire` must not
// overlap `src` or `dst`. Work is enqueued on `stream`; on the host it is complete when the call
// returns. Thread: one at a time.
class WireFormat {
 public:
  virtual ~WireFormat() = default;
  // Sets the step for methods with a key that depends on the step (registry.h: 0.25@0/0.01@400).
  // bytes(), sections() and all other calls refer to `step` from now on (before the first call:
  // step 0), and slices must name the same step. Returns true if payload lengths may differ between
  // steps. Other methods do nothing and return false.
  virtual bool turn_to(std::uint64_t /*step*/) { return false; }
  // The exact number of bytes that pack() writes for `elems` elements in that stage; 0 for 0.
  virtual std::size_t bytes(std::int64_t elems, int stage) const = 0;
  // Encodes src (m) into `wire`, which has room for bytes(m, slice.stage) bytes; returns that
  // number. Errors: kInvalidArgument for elements that the method cannot encode
  // (docs/wire_formats.md says how each treats NaN and infinity).
  virtual Result<std::size_t> pack(ConstTensorView src, const Slice& slice, ByteSpan wire,
                                   const Stream& stream) = 0;
  // Decodes `wire`. unpack(): dst (m) = wire; unpack_add(): acc (m) += wire. `slice` is as the
  // packing rank named it. Payloads come from the network and are checked. Errors: kCorruptPayload
  // for a wrong length or an impossible scale or code; the tensor is unspecified then.
  virtual Status unpack(ConstByteSpan wire, const Slice& slice, TensorView dst,
                        const Stream& stream) = 0;
  virtual Status unpack_add(ConstByteSpan wire, const Slice& slice, TensorView acc,
                            const Stream& stream) = 0;

  // The number of elements at whose multiples (from the slice's first element) several threads may
  // divide a slice and pack or unpack the chunks separately; 0: a slice is not divided. Each
  // section of the payload is then the concatenation of the chunks' sections, and values and
  // residuals have the same bits. The same at all steps. With Exchange::kAllGather, a value above 0
  // also promises that Compressor::open()'s payload is the slice of the whole tensor, gathered and
  // averaged.
  virtual std::int64_t seam(int /*stage*/) const { return 0; }
  // The lengths of a payload's sections in bytes, in order; their sum is bytes(elems, stage).
  virtual std::vector<std::size_t> sections(std::int64_t elems, int stage) const {
    return {bytes(elems, stage)};
  }

  // True if the method implements pack_with_feedback().
  virtual bool takes_feedback() const { return false; }
  // pack() of src + residual that also writes `next`, in one pass over memory. The feedback's
  // tensors are (m), as src. Returns the payload's length in bytes. Errors: kInvalidArgument,
  // naming the element, if src + residual is not finite (`next` is always finite on success);
  // kUnsupported unless takes_feedback().
  virtual Result<std::size_t> pack_with_feedback(ConstTensorView /*src*/,
                                                 const Feedback& /*feedback*/,
                                                 const Slice& /*slice*/, ByteSpan /*wire*/,
                                                 const Stream& /*stream*/) {
    return Status(Code::kUnsupported, "this wire format packs without error feedback only");
  }

  // True if the method implements fold().
  virtual bool folds() const { return false; }
  // Fused decode-reduce-encode: packs the sum of the addends, added from left to right, in one pass
  // over memory. The payload equals that of unpack() (or a copy) of the first addend, unpack_add()
  // (or an addition) of the others, and pack(). `elems`: elements of each addend; `sum`: the slice
  // of the result. Returns the payload's length in bytes. Errors: kCorruptPayload, as unpack(),
  // naming the addend (from 0); kUnsupported unless folds().
  virtual Result<std::size_t> fold(std::span<const Addend> /*addends*/, std::int64_t /*elems*/,
                                   const Slice& /*sum*/, ByteSpan /*wire*/,
                                   const Stream& /*stream*/) {
    return Status(Code::kUnsupported, "this wire format adds up element by element only");
  }
};

}  // namespace gradwire
