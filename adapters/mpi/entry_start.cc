// MPI_Init and MPI_Init_thread, of any level: the shim's own threads never call MPI.
#include <mpi.h>

#include "adapters/mpi/shim.h"

int MPI_Init(int* argc, char*** argv) {
  const int code = PMPI_Init(argc, argv);
  if (code == MPI_SUCCESS) gradwire::mpi::Shim::start();
  return code;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int code = PMPI_Init_thread(argc, argv, required, provided);
  if (code == MPI_SUCCESS) gradwire::mpi::Shim::start();
  return code;
}
