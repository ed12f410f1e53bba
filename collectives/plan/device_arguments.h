// What callers may hand to a Communicator whose tensors are on a device.
#pragma once

#include "collectives/plan/arguments.h"
#include "gradwire/tensor.h"

namespace gradwire {

// As check_call(), for tensors that are all on `device`: kInvalidArgument names one that is not.
Result<Extent> check_device_call(const OpCall& call, const OpOptions& options, int rank, int size,
                                 Device device);

}  // namespace gradwire
