// Which CUDA device a rank takes.
#pragma once

#include <optional>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// CUDA device `ordinal`. Without one that of `local_rank`, the rank's number among the ranks of its
// host: modulo the devices that this process sees, so that ranks share them in turn where there are
// fewer, and a rank that was shown one alone takes that. kInvalidArgument, with how many there are,
// for a device that is not among them; kUnsupported where there is none, or no CUDA in this build.
Result<Device> device_of_rank(std::optional<int> ordinal, int local_rank);

}  // namespace gradwire
