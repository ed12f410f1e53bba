// Several tensors added to one.
#pragma once

#include <optional>
#include <span>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// acc = ((acc op sources[0]) op sources[1]) ..., times `factor` if given, element by element in the
// order of the sources. f16 and bf16 are widened to f32 and rounded once, at the end; other types
// at every operation. Counts and dtypes must agree (kInvalidArgument); host memory; no source
// overlaps acc. op: not kMean.
Status fold(ReduceOp op, std::span<const ConstTensorView> sources, TensorView acc,
            std::optional<double> factor);

}  // namespace gradwire
