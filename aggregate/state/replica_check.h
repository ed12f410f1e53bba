// Do all ranks hold the same bytes?
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Collective: compares 64-bit hashes of every tensor over ranks (8 bytes per tensor and rank on the
// wire). All ranks list the same tensors in the same order. kRankMismatch names the first tensor
// that differs, and the ranks whose bytes are not rank 0's; `when` begins the message ("after step
// 100"). Blocks; for the thread that owns `communicator`.
Status check_replicas(Communicator& communicator, std::span<const NamedTensor> tensors,
                      const std::string& when);

// Collective, for other things that must be equal: one value per name and rank.
struct NamedHash {
  std::string name;
  std::uint64_t hash = 0;
};
Status check_equal(Communicator& communicator, std::span<const NamedHash> values,
                   const std::string& what);

}  // namespace gradwire
