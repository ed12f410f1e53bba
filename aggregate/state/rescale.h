// State that follows changes of scale from outside: learning rates and loss scales.
#pragma once

#include <span>
#include <vector>

#include "aggregate/plan/plan.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

enum class ScaleKind : std::uint8_t {
  kLearningRate,  // residuals, methods' "residual" too, of parameters with ef_rescale_lr
  kLossScale,     // whatever is in units of the gradient: residuals, ef21's, methods' "residual*"
};

// The entries that `kind` is about.
std::vector<NamedTensor> concerned(std::vector<NamedTensor> state,
                                   std::span<const Parameter> parameters, ScaleKind kind);

// Multiplies the entries of `state` that `kind` is about by `factor`, which is above 0.
// kInvalidArgument, naming the entry, when an element would not be finite; nothing has changed
// then. Residuals in bfloat16 are rounded to nearest; of int8 ones the scales are multiplied.
Status rescale_state(std::span<const NamedTensor> state, std::span<const Parameter> parameters,
                     ScaleKind kind, double factor);

}  // namespace gradwire
