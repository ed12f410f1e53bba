// Communicators for tensors on CUDA devices: declared in every build, defined where kHaveNccl
// holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/group_communicator.h"
#include "gradwire/communicator.h"
#include "gradwire/rendezvous.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Collective over `group`, which is a whole job: each rank brings a device of its own, or from NCCL
// 2.30 on, where the job's environment allows it, one that several share. libraries: where NCCL is
// looked for. kUnsupported where there is none, or no device; else errors of NcclComm::create.
Result<std::unique_ptr<Communicator>> make_nccl_communicator(
    std::unique_ptr<GroupCommunicator> group, const std::vector<std::string>& libraries,
    Device device, const Rendezvous& rendezvous);

}  // namespace gradwire
