// Floating numbers as integers whose order is theirs, for libraries whose maxima and minima lose a
// NaN or do not say which zero they take: the largest (least) integer is the largest (least) number
// as ReduceOp has it, where a NaN wins and -0 is below +0.
#pragma once

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire::cuda {

// Of the integers for a floating type: kI64 for kF64, else kI32.
constexpr DType ordered_type(DType floating) {
  return floating == DType::kF64 ? DType::kI64 : DType::kI32;
}

// Enqueues ordered[i] = the integer of numbers[i]; of a NaN the largest for kMax, the least for
// kMin. The tensors are as long as one another, of a floating type and its ordered_type(), on the
// stream's device, which is the thread's, and do not overlap. Nothing is checked.
Status to_ordered(ReduceOp op, ConstTensorView numbers, TensorView ordered, const Stream& stream);

// Enqueues the way back, for whichever operation: numbers[i] has its old bits, a NaN those that
// reduce() of device/ops.h gives.
Status from_ordered(ConstTensorView ordered, TensorView numbers, const Stream& stream);

}  // namespace gradwire::cuda
