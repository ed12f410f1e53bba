// All-reduces over NCCL of a group whose nodes are joined by messages.
#pragma once

#include <memory>

#include "collectives/plan/path.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Collective over the group, which has the path of NCCL on `device` already, and asks this one
// first. Null where two levels are one: on one node, or where no node has two ranks. Errors: those
// of Communicator::split(), and of the first operations.
Result<std::unique_ptr<CallPath>> make_nccl_two_levels(const GroupMembers& members, Device device);

}  // namespace gradwire
