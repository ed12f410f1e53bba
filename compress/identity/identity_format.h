// none's format, and what its coder wants of it beside that.
#pragma once

#include <optional>

#include "gradwire/wire_format.h"

namespace gradwire {

class ExactFormat : public WireFormat {
 public:
  // own = src, or src + residual. `own` is not the source's memory.
  virtual Status put_own(ConstTensorView src, const std::optional<Feedback>& feedback,
                         TensorView own, const Stream& stream) = 0;
};

}  // namespace gradwire
