// Error feedback as part of a coder's own passes over memory.
#pragma once

#include "gradwire/tensor.h"

namespace gradwire {

// What is compressed is p = gradient + residual, and next = p - scale * own is left for the next
// step, where own is what the payload decodes to. Sums, products and differences are rounded one by
// one in the gradient's type, so that results are the bits that separate passes give. All tensors
// have the gradient's shape and dtype; next overlaps nothing.
struct Feedback {
  ConstTensorView residual;  // never written: an aborted step leaves it as it was
  TensorView next;           // unspecified until the step's end
  double scale = 1;
};

}  // namespace gradwire
