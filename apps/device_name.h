// Where tensors lie, as flags spell it.
#pragma once

#include <string>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// "cpu", "cuda" (the first device) or "cuda:N". kInvalidArgument for another word.
Result<Device> parse_device(const std::string& text);

}  // namespace gradwire
