// Elementwise work and GEMM on one device. All tensors of a call lie on the same device and are
// contiguous; counts must agree (kInvalidArgument). A memory space that this build lacks is
// kUnsupported.
#pragma once

#include <cstdint>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// dst = src; between any two supported devices. Sizes must be equal; the ranges must not overlap.
Status copy_bytes(ConstByteSpan src, Device src_device, ByteSpan dst, Device dst_device,
                  const Stream& stream);

// acc = acc op src, element by element, in the dtype; f16 and bf16 are combined in f32 and rounded
// once, integers wrap around. Which of the two operands is which makes no difference to the result
// (but for which of two NaNs a sum or product is). kMean and kPreMulSum are invalid here: they are
// sums followed by scale() or preceded by scaled_copy().
Status reduce(ReduceOp op, ConstTensorView src, TensorView acc, const Stream& stream);

// tensor *= factor. Floating types; the factor is rounded to the dtype (f32 for f16 and bf16)
// first.
Status scale(TensorView tensor, double factor, const Stream& stream);

// dst = factor * src, rounded once; src and dst may be the same memory. As scale() otherwise.
Status scaled_copy(ConstTensorView src, double factor, TensorView dst, const Stream& stream);

// Every element becomes what `op` leaves other values as they are with: 0 for kSum, kMean and
// kPreMulSum, 1 for kProduct, the highest value (infinity) for kMin, the lowest for kMax.
Status fill_neutral(ReduceOp op, TensorView tensor, const Stream& stream);

// dst = src converted, round to nearest even. Floating types.
Status cast(ConstTensorView src, TensorView dst, const Stream& stream);

// dst (f16 or bf16) = factor * src (f32), round to nearest even; a product of a finite value that
// dst cannot hold becomes the largest that it can, of the same sign. The factor is rounded to f32
// first.
Status saturating_cast(ConstTensorView src, double factor, TensorView dst, const Stream& stream);

// c = op(a) op(b), row-major matrices of kF32 or kF64; op is transposition where asked for.
// a: (n, k) or (k, n) when transposed; b: (k, m) or (m, k); c: (n, m). c overlaps neither.
struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};
Status gemm(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options,
            const Stream& stream);

}  // namespace gradwire
