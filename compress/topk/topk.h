// topk: the k elements of largest magnitude, exactly, with their indices.
//
//   payload := index{k} value{k}
//   index   := u32, little-endian, strictly ascending, below the number of elements
//   value   := fp32 or fp64 (the gradient's own type), little-endian
//
// k = ceil(ratio * elements), at least 1; or k=K, at most the number of elements. Magnitudes
// compare by their bits without the sign, so that infinity is above every number and NaN above
// infinity: a NaN travels first and shows in the mean. Equal magnitudes: the lowest index wins. The
// index type does not depend on the element type; tensors of more than 2^32 elements are refused.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method topk_method();

}  // namespace gradwire
