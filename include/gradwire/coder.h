// One tensor's compression state on one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// Per step, in this order: begin, then for each round r: encode(r) -> exchange -> absorb(r), then
// finish. Communication stays outside: the caller sums, maximises or gathers the payloads as
// Compressor::round_kind() says. Not thread-safe. Work is enqueued on `stream`; on the host it is
// done when the call returns. A coder outlives the work: whoever ends one has waited for its
// stream.
class Coder {
 public:
  virtual ~Coder() = default;

  // grad: the opened shape and dtype. Lent until finish() returns, and not changed. `step` keys the
  // counter-based randomness.
  virtual Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) = 0;

  // Whether begin_with_feedback() is offered: begin() for gradient + residual, in as few passes
  // over memory as the method allows. Feedback's tensors are lent until finish() has returned; next
  // is complete when it has returned with success. encode() answers kInvalidArgument, naming the
  // element, unless gradient + residual is finite; finish() does unless next is.
  virtual bool takes_feedback() const { return false; }
  virtual Status begin_with_feedback(ConstTensorView /*grad*/, const Feedback& /*feedback*/,
                                     std::uint64_t /*step*/, const Stream& /*stream*/) {
    return {Code::kUnsupported, "this coder is told of no residual"};
  }

  // Writes this rank's payload, at most max_payload_bytes(shape, round); returns its length in
  // bytes.
  virtual Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) = 0;

  // payloads: one (the sum or maximum) for a round that reduces, size() in rank order for
  // kAllGather. A payload that reduces may start at any byte. Lent until
  // finish() returns. Bytes come from the network and are verified here or in finish():
  // kCorruptPayload on a bad length, index or scale, never undefined behaviour.
  virtual Status absorb(int round, std::span<const ConstByteSpan> payloads,
                        const Stream& stream) = 0;

  // mean: the average over ranks, bit-identical on all of them; it may be the memory given to
  // begin(). own: what this rank's payload decodes to; skipped if empty; never the memory given to
  // begin(). Law: mean == average over ranks of own.
  virtual Status finish(TensorView mean, TensorView own, const Stream& stream) = 0;

  // Everything that must survive a checkpoint; also the memory report. Views are valid until the
  // next finish(), which may keep what it says elsewhere. When the number of ranks changes, an
  // entry whose name begins with "residual" (kF32 or kF64) becomes its average over the old ranks
  // on every new one; any other must be equal on all ranks.
  virtual std::vector<NamedTensor> state() = 0;
};

}  // namespace gradwire
