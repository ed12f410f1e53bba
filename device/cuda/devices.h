// CUDA devices that this process sees, without CUDA's headers: declared in every build, defined
// where kHaveCuda holds.
#pragma once

#include "gradwire/status.h"

namespace gradwire::cuda {

// At least 1. kUnsupported with CUDA's word where there is none, or no driver for it.
Result<int> count_devices();

}  // namespace gradwire::cuda
