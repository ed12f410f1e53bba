// What cast's coder wants of its wire format, on the host and on devices.
#pragma once

#include <optional>

#include "compress/cast/cast_kernels.h"
#include "gradwire/wire_format.h"

namespace gradwire {

class HalfFormat : public WireFormat {
 public:
  // own = what the payload of src decodes to; with feedback, of src + its residual. Tensors are as
  // pack_with_feedback() wants them; own may be src.
  virtual Status put_own(ConstTensorView src, const std::optional<Feedback>& feedback, int stage,
                         TensorView own, const Stream& stream) = 0;
  // mean = a sum over all ranks as it travels in `stage`, divided by their number. mean.elems()
  // elements are there.
  virtual Status put_mean(ConstByteSpan sum, int stage, TensorView mean, const Stream& stream) = 0;
};

// What elements are divided by as they travel. Stage 1 holds sums over `size` ranks: divided, they
// keep to the range of what was summed, which fp16 needs.
constexpr double half_divisor(HalfType type, int size, int stage) {
  return stage == 1 && type == HalfType::kFp16 ? static_cast<double>(size) : 1.0;
}

}  // namespace gradwire
