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
  int local_rank = 0;  // rank among those of this host, where the launcher says so; else rank
  std::string source;  // "arguments", "GRADWIRE_*", "torchrun", "Open MPI", "PMI", "PALS", "Slurm",
                       // "RANK/WORLD_SIZE", "alone"
  // How the ranks meet; "" when the launcher gives them no way. "host:port" of rank 0,
  // "file://DIR", or where rank 0 tells its address to the others: "pmi://FD" (the PMI-1 connection
  // of a process manager), "pmix://", "torch://host:port" (the store of torchrun's agent).
  // "slurm://host:port": rank 0 takes that port or one of the next, the others look for it.
  std::string rendezvous;
  std::string job;     // an id shared by the job's ranks, "job" when the launcher has none
  int local_size = 0;  // ranks of this host; 0 when the launcher does not say
  std::string reason =
      {};  // for people: what was seen that `source` was taken for, what left aside
  std::string interface =
      {};  // GRADWIRE_IFNAME: where rank 0 can be reached, as interface or address
};

// What a program or its user says instead of a launcher, as the variables of the same names would.
struct LaunchArguments {
  std::optional<int> rank = {};  // GRADWIRE_RANK
  std::optional<int> size = {};  // GRADWIRE_WORLD_SIZE
  std::optional<int> local_rank = {};
  std::string rendezvous = {};  // "": as the environment says
  std::string job = {};
};

// In this order: `arguments` with rank and size; GRADWIRE_RANK/WORLD_SIZE/RENDEZVOUS; torchrun
// (RANK with LOCAL_RANK, WORLD_SIZE); Open MPI (OMPI_COMM_WORLD_*); PMI (PMI_RANK); PALS; Slurm
// (SLURM_STEP_ID set and more than one task, srun --mpi=pmix too); plain RANK/WORLD_SIZE; else
// alone. A half-set or malformed group is kInvalidArgument naming the variable, the value seen and
// the value wanted. Looks, and meets nobody: open_rendezvous() does.
Result<LaunchInfo> discover_launch(const EnvLookup& env, const LaunchArguments& arguments = {});

}  // namespace gradwire
