// From a call to what NCCL is asked for it.
//
//   all_reduce, reduce, broadcast, reduce_scatter, all_gather   NCCL's own, one call
//   all_reduce_fused                     a group of all-reduces, which NCCL runs as one
//   reduce_scatter_v, all_gather_v       a group of reductions or broadcasts, one for each rank
//   gather(_v), scatter(_v), all_to_all(_v), send, recv   a group of sends and receives; a rank's
//                                        own row is copied on the device
//   barrier                              an all-reduce of one byte
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/plan/arguments.h"
#include "comm/nccl/nccl_comm.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

struct NcclPlan {
  struct Copy {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Copy> copies = {};  // before the steps, in the stream's order
  std::vector<NcclStep> steps = {};
  // That this rank has to send whatever the algorithm: NCCL does not say what it sends.
  std::uint64_t bytes = 0;
};

// What NCCL has no call for: kUnsupported, naming what was asked and what is there: exclusive_scan,
// tags other than 0, a recv from any source, an algorithm other than "auto" and "nccl".
Status check_nccl_serves(const OpCall& call, const OpOptions& options);

// Whether `in` must lie elsewhere, since rows arrive where others have yet to leave from.
bool needs_copy_of_in(const OpCall& call, const Extent& extent);

// Requires check_call() for the device and check_nccl_serves(). in: call.in's data, or the copy.
// spare: a byte of the device, for barriers.
NcclPlan plan_nccl(const OpCall& call, const Extent& extent, double factor, int rank, int size,
                   const std::byte* in, std::byte* spare);

}  // namespace gradwire
