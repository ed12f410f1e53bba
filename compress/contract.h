// What every coder and wire format asks of its arguments, checked once and said in the same words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gradwire/compressor.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// kUnsupported unless host memory and kF32 or kF64; kInvalidArgument unless 0 <= rank < size.
Status check_placement(std::string_view method, const Compressor::Placement& where);

// kInvalidArgument unless `tensor` holds `elems` elements of `dtype` in host memory. `what` names
// method and argument: "topk: grad".
Status check_tensor(std::string_view what, ConstTensorView tensor, std::int64_t elems, DType dtype);

// kInvalidArgument unless src, feedback.residual and feedback.next are tensors of `dtype` of one
// size.
Status check_feedback(std::string_view method, ConstTensorView src, const Feedback& feedback,
                      DType dtype);

// kInvalidArgument unless a buffer of `room` bytes takes `wanted`.
Status check_room(std::string_view what, std::size_t room, std::size_t wanted);

// Of received bytes: kCorruptPayload unless there are `wanted` of them.
Status check_length(std::string_view what, std::size_t seen, std::size_t wanted);

// kInvalidArgument unless 0 <= round < rounds.
Status check_round(std::string_view method, int round, int rounds);

}  // namespace gradwire
