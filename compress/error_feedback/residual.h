// Arithmetic of error feedback under sra, where the residual is kept chunk by chunk.
#pragma once

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// error += grad. kInvalidArgument naming the element when a sum is not finite: one NaN in a
// residual would stay for ever; `error` is then as it was. kF32 or kF64, equal counts.
Status add_gradient(ConstTensorView grad, TensorView error);

// out = grad + error, in one pass; the same errors, of which `out` is then unspecified.
Status put_sum(ConstTensorView grad, ConstTensorView error, TensorView out);

// values -= sent. kInvalidArgument naming the element when a difference is not finite (the method's
// range overflowed).
Status subtract(ConstTensorView sent, TensorView values);

}  // namespace gradwire
