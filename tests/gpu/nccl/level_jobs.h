// Jobs of the aggregator on two levels, for communicators over NCCL.
#pragma once

#include <string>
#include <vector>

#include "tests/gpu/messages/device_job.h"

namespace gradwire::testing {

// Sums are of two ranks, or of two nodes, so that they have the same bits in whatever order. Rules
// of a device over NCCL have vectors that are not compressed go on two levels, too; the host's are
// told to.
inline Job host_job(const std::string& spec, const std::vector<int>& node_of) {
  Job job = job_of("bias=none:intra_node=none;*=" + spec, static_cast<int>(node_of.size()));
  job.node_of = node_of;
  job.algorithm = "auto";
  return job;
}

}  // namespace gradwire::testing
