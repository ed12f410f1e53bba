// Which MPI a program is made for.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// An MPI by the name of its preloaded library (libgradwire_mpi_NAME.so): "openmpi" or "mpich".
struct LinkedMpi {
  std::string name;     // "": the program links none, or is no program that tells (a script)
  std::string library;  // that says so, "libmpi.so.40"
};

// From the names of the libraries that a program loads. kInvalidArgument, with both, where it loads
// two kinds of MPI.
Result<LinkedMpi> mpi_among(const std::vector<std::string>& libraries);

// Asks the dynamic loader that `path` names what it would load; the program does not run. A script,
// or a program without a loader, links none.
Result<LinkedMpi> linked_mpi(const std::string& path);

}  // namespace gradwire
