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

// acc = acc op src, element by element, in the dtype; f16 and bf16 are added in f32 and rounded
// once. kMean is invalid here: it is a sum followed by scale().
Status reduce(ReduceOp op, ConstTensorView src, TensorView acc, const Stream& stream);

// tensor *= factor. Floating types; the factor is rounded to the dtype (f32 for f16 and bf16)
// first.
Status scale(TensorView tensor, double factor, const Stream& stream);

// dst = src converted, round to nearest even. Floating types.
Status cast(ConstTensorView src, TensorView dst, const Stream& stream);

// c = op(a) op(b), row-major matrices of kF32 or kF64; op is transposition where asked for.
// a: (n, k) or (k, n) when transposed; b: (k, m) or (m, k); c: (n, m). c overlaps neither.
struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};
Status gemm(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options,
            const Stream& stream);

}  // namespace gradwire
