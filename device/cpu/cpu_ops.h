// Host kernels behind device/ops.h. Callers have checked dtypes, counts and places.
#pragma once

#include "device/ops.h"

namespace gradwire::cpu {
void reduce(ReduceOp op, ConstTensorView src, TensorView acc);
void scale(TensorView tensor, double factor);
void cast(ConstTensorView src, TensorView dst);
void gemm(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options);
}  // namespace gradwire::cpu
