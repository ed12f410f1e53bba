#pragma once

#include <cstdint>

#include "gradwire/tensor.h"

namespace gradwire {
enum class HalfType : std::uint8_t { kFp16, kBf16 };
}  // namespace gradwire

namespace gradwire::cpu {

// Sizes agree; `wire` may start at any byte; src, dst, acc are kF32 or kF64. The product with
// `factor` is taken in the tensor's type.
// wire = half(src * factor)
void to_half(HalfType type, ConstTensorView src, double factor, ByteSpan wire);
// dst = wire * factor
void from_half(HalfType type, ConstByteSpan wire, double factor, TensorView dst);
// acc += wire * factor
void add_half(HalfType type, ConstByteSpan wire, double factor, TensorView acc);
// dst = half(src * factor) * inverse: what a payload of src decodes to. dst may be src.
void through_half(HalfType type, ConstTensorView src, double factor, double inverse,
                  TensorView dst);

}  // namespace gradwire::cpu
