// Calls that MPI always carries, to be counted. A request of MPI's can be completed by MPI alone,
// or by a thread that may call MPI, which most programs do not allow.
#include <mpi.h>

#include "adapters/mpi/arguments.h"
#include "adapters/mpi/shim.h"

using gradwire::mpi::bytes_of;
using gradwire::mpi::Call;
using gradwire::mpi::Interception;

int MPI_Iallreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
  Interception(Call::kIallreduce, comm).leave(bytes_of(count, datatype));
  return PMPI_Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request);
}

int MPI_Ibcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm,
               MPI_Request* request) {
  Interception(Call::kIbcast, comm).leave(bytes_of(count, datatype));
  return PMPI_Ibcast(buffer, count, datatype, root, comm, request);
}
