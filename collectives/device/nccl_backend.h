// NCCL as a backend: its names, and how a communicator over messages gets it for tensors on CUDA
// devices.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/path.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// Whether a backend, or a transport, of that name is NCCL: "nccl", or "nccl:" and anything.
bool is_nccl(std::string_view name);
// Of such a name: N of "nccl:N"; nullopt for "nccl". kInvalidArgument where no number follows.
Result<std::optional<int>> nccl_ordinal(std::string_view name);
// kUnsupported in a build without NCCL.
Status check_have_nccl();

// The path of NCCL, in a build with it, which is looked for in `libraries`. Collective over
// `world`, which is a whole job. Each rank brings CUDA device `ordinal`, or, without one, that of
// its place among the ranks of its node (device_of_rank); a device of its own, or from NCCL 2.30
// on, where the job's environment allows it, one that several share. kUnsupported where a rank has
// no NCCL, or no device: it says what is missing, the others which rank it is. Else errors of
// NcclComm::create, after `timeout_seconds` kTimedOut.
Result<std::unique_ptr<CallPath>> make_nccl_path(const GroupMembers& world,
                                                 const std::vector<std::string>& libraries,
                                                 std::optional<int> ordinal,
                                                 double timeout_seconds);

}  // namespace gradwire
