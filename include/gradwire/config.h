// Where a process learns which rank it is: the launchers that gradwire knows, in one order.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "gradwire/status.h"

namespace gradwire {

// Looks a variable up; nullopt when unset. The library never reads the environment itself: programs
// and adapters pass getenv in, tests pass a map.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;

struct LaunchInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;      // rank among those of this host, where the launcher says so; else rank
  std::string source;      // "GRADWIRE_*", "torchrun", "Open MPI", "PMI", "PALS", "Slurm",
                           // "RANK/WORLD_SIZE", "alone"
  std::string rendezvous;  // "host:port" or "file://DIR"; "" when the launcher names none
  std::string job;         // an id shared by the job's ranks, "job" when the launcher has none
};

// In this order: GRADWIRE_RANK/WORLD_SIZE/RENDEZVOUS; torchrun (RANK with LOCAL_RANK, WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT); Open MPI (OMPI_COMM_WORLD_*); PMI (PMI_RANK); PALS; Slurm
// (SLURM_STEP_ID set and more than one task); plain RANK/WORLD_SIZE; else alone. A half-set or
// malformed group is kInvalidArgument naming the variable, the value seen and the value wanted.
Result<LaunchInfo> discover_launch(const EnvLookup& env);

}  // namespace gradwire
