// Values that are not finite, which no later step mends: what ends a training, and is never saved
// as something to go on from.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "gradwire/status.h"
#include "trainer/checkpoint/tensor_file.h"

namespace gradwire {

// kInvalidArgument that names `what` ("loss"), the step (counted from 1) and the value, unless it
// is finite.
Status check_loss(std::string_view what, std::int64_t step, double value);

// kInvalidArgument that names the first element that is not finite of those tensors that are the
// model: "parameters/NAME", and "rank-R/mode/w", a worker's own one. Other state may overflow
// without harm.
Status check_model(std::span<const TensorPart> parts);
// The same for parameters in one piece.
Status check_model(std::span<const float> parameters);

}  // namespace gradwire
