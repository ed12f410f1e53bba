// Coder: one tensor's compression on one rank, with the state that the method keeps.
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

// The calls of a step, in this order:
//
//   begin(gradient)
//   for each round r:  encode(r)  ->  the caller exchanges payloads  ->  absorb(r)
//   finish(averaged gradient, local decoded gradient)
//
// A Coder does not communicate: the caller sums, maximises or gathers payloads between ranks, as
// Compressor::round_kind() says. Work is enqueued on `stream`; on the host it is complete when the
// call returns. The caller waits for the stream before it destroys the Coder. Thread: one at a
// time.
class Coder {
 public:
  virtual ~Coder() = default;

  // Begins a step. grad has the shape and element type given to Compressor::open(); it is lent
  // until finish() returns, and is not changed. `step` is the training step, counted from 0; it
  // keys the random numbers. Errors: kInvalidArgument for another shape, type or device.
  virtual Status begin(ConstTensorView grad, std::uint64_t step, const Stream& stream) = 0;

  // True if the method implements begin_with_feedback().
  virtual bool takes_feedback() const { return false; }
  // begin() for gradient + residual, in as few passes over memory as the method allows. The
  // feedback's tensors are lent until finish() returns; `next` is complete when finish() succeeds.
  // Errors: kUnsupported unless takes_feedback(). Later calls of the step return kInvalidArgument,
  // naming the element, if gradient + residual (encode) or `next` (finish) is not finite.
  virtual Status begin_with_feedback(ConstTensorView /*grad*/, const Feedback& /*feedback*/,
                                     std::uint64_t /*step*/, const Stream& /*stream*/) {
    return {Code::kUnsupported, "this coder is told of no residual"};
  }

  // Writes this rank's payload of that round into `payload`, which has room for
  // Compressor::max_payload_bytes() bytes; returns the payload's length in bytes. Errors:
  // kInvalidArgument for elements that the method cannot encode.
  virtual Result<std::size_t> encode(int round, ByteSpan payload, const Stream& stream) = 0;

  // Takes the exchanged payloads of that round: one payload (the sum or maximum over ranks) if the
  // round reduces, else one per rank, in rank order. They are lent until finish() returns, and need
  // no alignment. Payloads come from the network and are checked here or in finish(). Errors:
  // kCorruptPayload for a wrong length, index, scale or code.
  virtual Status absorb(int round, std::span<const ConstByteSpan> payloads,
                        const Stream& stream) = 0;

  // Ends the step. mean: receives the averaged gradient, bit-identical on all ranks; it may be the
  // memory given to begin(). own: receives the local decoded gradient (what this rank's payload
  // decodes to), in other memory than begin()'s; it may be empty. Both have the opened shape. The
  // average over ranks of `own` is `mean` (property test), unless Traits::mean_is_average_of_own is
  // false. Errors: kCorruptPayload, as absorb(); kInvalidArgument, as begin_with_feedback().
  virtual Status finish(TensorView mean, TensorView own, const Stream& stream) = 0;

  // All tensors that a checkpoint must save; between steps only. The views are valid until the next
  // finish(). When a checkpoint is loaded on another number of ranks, an entry whose name begins
  // with "residual" (kF32 or kF64) becomes, on every new rank, the average over the old ranks; any
  // other entry must be equal on all ranks.
  virtual std::vector<NamedTensor> state() = 0;
};

}  // namespace gradwire
