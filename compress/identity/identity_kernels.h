#pragma once

#include "gradwire/tensor.h"

namespace gradwire::cpu {

// acc += the elements in `wire`, which may start at any byte. kF32 or kF64; sizes agree.
void add_elements(ConstByteSpan wire, TensorView acc);

}  // namespace gradwire::cpu
