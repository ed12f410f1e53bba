// Device kernels behind device/ops.h. Callers have checked dtypes, counts and places, and the
// tensors' device is the thread's. Results are the host's bits, but for which of two NaNs a sum or
// product is.
#pragma once

#include "device/ops.h"

namespace gradwire::cuda {
Status reduce(ReduceOp op, ConstTensorView src, TensorView acc, const Stream& stream);
Status scaled_copy(ConstTensorView src, double factor, TensorView dst, const Stream& stream);
Status fill_neutral(ReduceOp op, TensorView tensor, const Stream& stream);
Status cast(ConstTensorView src, TensorView dst, const Stream& stream);
Status saturating_cast(ConstTensorView src, double factor, TensorView dst, const Stream& stream);
// By cuBLAS, which is opened at the first call: kUnsupported, saying where it was looked for, if
// there is none.
Status gemm(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options,
            const Stream& stream);
}  // namespace gradwire::cuda
