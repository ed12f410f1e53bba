// Error feedback where a tensor is packed slice by slice, and not by one coder, with the words of
// ef14.h, ef21.h and loco.h:
//
//   ef14                   p = x + e          e <- p - sent
//   loco, stored residual  p = x + e          e <- beta e + (1 - beta)(p - sent), stored
//   ef21, ef21_sgdm        d = x - h          h <- h + sent
//
// A slice that reaches its owner as it is (nobody packs one's own) leaves nothing over: e = 0, h =
// x. A step that fails finishes the aggregator, so that nothing needs to be kept as it was.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compress/error_feedback/feedback.h"
#include "gradwire/compressor.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"
#include "gradwire/wire_format.h"

namespace gradwire {

// What pack() below is asked for.
struct PackedPiece {
  ConstTensorView input;  // elements [first, first + input.elems()) of the opened shape
  std::int64_t first = 0;
  Slice slice;       // as their packer names them
  double scale = 1;  // multiplies what the others read
};

class SliceFeedback {
 public:
  virtual ~SliceFeedback() = default;
  // What is to be packed instead of `input`, which has the opened shape: memory of this object's,
  // valid until finish(). kInvalidArgument, naming the element, unless it is finite.
  virtual Result<TensorView> correct(ConstTensorView input, std::uint64_t step) = 0;
  // Elements [first, first + sent.elems()) of it reach the others as `sent`, which has been
  // multiplied by the scale. Every element is settled once a step. kInvalidArgument as subtract().
  virtual Status settle(std::int64_t first, ConstTensorView sent) = 0;
  virtual Status settle_exactly(std::int64_t first, std::int64_t count) = 0;

  // Whether the next two may be called instead of correct() and settle(): a slice is corrected,
  // packed and settled in one pass over memory, with the same bits.
  virtual bool packs(const WireFormat& /*format*/) const { return false; }
  // WireFormat::pack() of input + residual, whose count it returns.
  virtual Result<std::size_t> pack(WireFormat& /*format*/, const PackedPiece& /*piece*/,
                                   ByteSpan /*wire*/) {
    return Status(Code::kUnsupported, "error feedback: this kind has passes of its own");
  }
  // What takes the place of `input`, elements [first, ...) that are not packed but settled
  // exactly. In memory as of correct(), of which all other elements are unspecified.
  virtual Result<TensorView> correct_part(ConstTensorView /*input*/, std::int64_t /*first*/) {
    return Status(Code::kUnsupported, "error feedback: this kind has passes of its own");
  }

  // After the last settle(). kInvalidArgument where the new state is beyond what holds it.
  virtual Status finish() = 0;
  // "error" and where stored so "error.scale", or "ef21.h" and with a moving average "ef21.v".
  // Views stay valid until the next step.
  virtual std::vector<NamedTensor> state() = 0;
};

// For tensors of `shape` and where.dtype. `stage` keeps the draws of a parameter's several
// residuals apart. Null for kNone. On a CUDA device (kF32, else kUnsupported) tensors and state lie
// there, and all calls enqueue on `stream`; those that look whether something is finite wait for
// it, and name elements without their values.
Result<std::unique_ptr<SliceFeedback>> make_slice_feedback(const FeedbackOptions& options,
                                                           const Shape& shape,
                                                           const Compressor::Placement& where,
                                                           int stage, const Stream& stream = {});

}  // namespace gradwire
