// `gradwire mpi` and `gradwire record`: an MPI program under gradwire's preloaded library.
#pragma once

#include <string>
#include <vector>

#include "apps/mpi/linked_mpi.h"
#include "gradwire/config.h"
#include "gradwire/status.h"

namespace gradwire {

// Which library a program needs under its launcher: as it links, else as the launcher. The error
// names both where they do not fit, since each process would silently be a job of one then.
// `wanted`: "openmpi" or "mpich" for programs that do not tell, or "auto".
Result<std::string> choose_mpi(const LinkedMpi& linked, const LaunchInfo& launch,
                               const EnvLookup& env, const std::string& wanted);

// Both become the program, unless they fail before.
Result<int> mpi_command(const std::vector<std::string>& args);
Result<int> record_command(const std::vector<std::string>& args);

}  // namespace gradwire
