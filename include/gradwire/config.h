// Finds a process's rank, the number of ranks and the rendezvous from the launcher's environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "gradwire/status.h"

namespace gradwire {

// Returns the value of an environment variable, or nullopt if it is unset. The C++ library does not
// read the environment itself: programs pass a wrapper of getenv, tests pass a map.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;

// What discover_launch() found.
struct LaunchInfo {
  int rank = 0;        // this process's rank, 0 to size - 1
  int size = 1;        // number of ranks in the job
  int local_rank = 0;  // rank among those of this host; `rank` if the launcher does not say
  std::string source;  // the launcher: "arguments", "GRADWIRE_*", "torchrun", "Open MPI", "PMI",
                       // "PALS", "Slurm", "RANK/WORLD_SIZE" or "alone"
  // How the ranks find each other; empty if the launcher offers no way. One of
  //   "host:port"           rank 0 serves a TCP store there
  //   "file://DIR"          a store of files in a shared folder
  //   "slurm://host:port"   as host:port; rank 0 takes that port or one of the next, others try
  //                         them
  //   "pmi://FD", "pmix://", "torch://host:port"
  //                         rank 0 publishes its address through the process manager (PMI-1 on
  //                         file descriptor FD, PMIx) or the store of torchrun's agent
  std::string rendezvous;
  std::string job;          // an id that the job's ranks share; "job" if the launcher has none
  int local_size = 0;       // number of ranks on this host; 0 if the launcher does not say
  std::string reason = {};  // for people: the variables that decided, and those that were ignored
  std::string interface = {};  // GRADWIRE_IFNAME: interface or address at which to reach rank 0
};

// Values that a program sets itself; they take precedence over the environment.
struct LaunchArguments {
  std::optional<int> rank = {};        // this rank, as GRADWIRE_RANK
  std::optional<int> size = {};        // number of ranks, as GRADWIRE_WORLD_SIZE
  std::optional<int> local_rank = {};  // rank among those of this host
  std::string rendezvous = {};         // as LaunchInfo::rendezvous; empty: from the environment
  std::string job = {};                // as LaunchInfo::job; empty: from the environment
};

// Reads rank, size and rendezvous from the first of these that is set: `arguments` (rank and size);
// GRADWIRE_RANK, GRADWIRE_WORLD_SIZE, GRADWIRE_RENDEZVOUS; torchrun (RANK with LOCAL_RANK and
// WORLD_SIZE); Open MPI (OMPI_COMM_WORLD_*); PMI (PMI_RANK); PALS; Slurm (SLURM_STEP_ID and more
// than one task, with srun --mpi=pmix too); RANK and WORLD_SIZE alone. If none is set: one rank.
// Opens no connection; open_rendezvous() does. Errors: kInvalidArgument if a group of variables is
// incomplete or malformed, naming the variable, the value and what was expected.
Result<LaunchInfo> discover_launch(const EnvLookup& env, const LaunchArguments& arguments = {});

}  // namespace gradwire
