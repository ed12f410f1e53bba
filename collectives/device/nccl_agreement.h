// What ranks tell one another before they make a communicator over NCCL.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/plan/group.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// The job ranks, other than its own, that are threads of this rank's process and bring its device:
// what one of them has on CUDA's default stream stands before what this rank puts there.
using NcclNeighbours = std::vector<int>;

// Collective: all ranks or none. `version` of NCCL is that of every rank: kRankMismatch, naming
// both. 0: this rank cannot take part, and says why itself; the others are told who it is
// (kUnsupported). `device` is what this rank brings.
Result<NcclNeighbours> agree_on_nccl(Communicator& group, int version, Device device);

// kInvalidArgument, naming a neighbour and what to do, where `stream`, of this rank's device, is
// CUDA's default stream or goes with it, and a neighbour is among `group`: an operation's kernels
// there would wait for each other for ever, at once or when somebody frees memory.
Status check_own_stream(const std::string& operation, const Stream& stream, const Group& group,
                        const NcclNeighbours& neighbours);

}  // namespace gradwire
