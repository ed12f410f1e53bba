// Host kernels behind device/ops.h. Callers have checked dtypes, counts and places.
#pragma once

#include "device/ops.h"

namespace gradwire::cpu {
void reduce(ReduceOp op, ConstTensorView src, TensorView acc);
void scaled_copy(ConstTensorView src, double factor, TensorView dst);
void fill_neutral(ReduceOp op, TensorView tensor);
void cast(ConstTensorView src, TensorView dst);
void saturating_cast(ConstTensorView src, double factor, TensorView dst);
void gemm(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options);
}  // namespace gradwire::cpu
