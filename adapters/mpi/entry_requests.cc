// Where programs wait for requests: those that stand for operations of gradwire's have to be told
// done first. Programs without such ones pay for one look at a counter.
#include <mpi.h>

#include <chrono>
#include <span>
#include <thread>

#include "adapters/mpi/shim.h"

using gradwire::mpi::PendingOperations;
using gradwire::mpi::Shim;

namespace {

// Null where no operation of gradwire's is under way.
PendingOperations* pending() {
  Shim* shim = Shim::get();
  return shim != nullptr && !shim->pending().none() ? &shim->pending() : nullptr;
}

std::span<const MPI_Request> all(int count, const MPI_Request* requests) {
  return {requests, count > 0 ? static_cast<std::size_t>(count) : 0};
}

// The operation's error, which the handler has had, before MPI's.
int worse(int ours, int of_mpi) { return ours != MPI_SUCCESS ? ours : of_mpi; }

// Lets requests become done until `test` finds what it wants.
template <typename Test>
int until(PendingOperations& operations, int count, const MPI_Request* requests, const Test& test) {
  std::chrono::microseconds pause(10);
  while (true) {
    const int ours = operations.finish_done(all(count, requests));
    int found = 0;
    const int code = test(found);
    if (ours != MPI_SUCCESS || code != MPI_SUCCESS || found != 0) return worse(ours, code);
    std::this_thread::sleep_for(pause);
    if (pause < std::chrono::microseconds(500)) pause *= 2;
  }
}

}  // namespace

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  PendingOperations* operations = pending();
  const int ours = operations != nullptr ? operations->finish(*request) : MPI_SUCCESS;
  return worse(ours, PMPI_Wait(request, status));
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  int ours = MPI_SUCCESS;
  if (PendingOperations* operations = pending()) {
    for (const MPI_Request request : all(count, requests)) {
      ours = worse(ours, operations->finish(request));
    }
  }
  return worse(ours, PMPI_Waitall(count, requests, statuses));
}

int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
  PendingOperations* operations = pending();
  if (operations == nullptr) return PMPI_Waitany(count, requests, index, status);
  return until(*operations, count, requests,
               [&](int& found) { return PMPI_Testany(count, requests, index, &found, status); });
}

int MPI_Waitsome(int count, MPI_Request requests[], int* done, int indices[],
                 MPI_Status statuses[]) {
  PendingOperations* operations = pending();
  if (operations == nullptr) return PMPI_Waitsome(count, requests, done, indices, statuses);
  return until(*operations, count, requests, [&](int& found) {
    const int code = PMPI_Testsome(count, requests, done, indices, statuses);
    found = *done != 0 ? 1 : 0;  // MPI_UNDEFINED too: nothing is under way
    return code;
  });
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  PendingOperations* operations = pending();
  const int ours = operations != nullptr ? operations->finish_done(all(1, request)) : MPI_SUCCESS;
  return worse(ours, PMPI_Test(request, flag, status));
}

int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  PendingOperations* operations = pending();
  const int ours =
      operations != nullptr ? operations->finish_done(all(count, requests)) : MPI_SUCCESS;
  return worse(ours, PMPI_Testall(count, requests, flag, statuses));
}

int MPI_Testany(int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  PendingOperations* operations = pending();
  const int ours =
      operations != nullptr ? operations->finish_done(all(count, requests)) : MPI_SUCCESS;
  return worse(ours, PMPI_Testany(count, requests, index, flag, status));
}

int MPI_Testsome(int count, MPI_Request requests[], int* done, int indices[],
                 MPI_Status statuses[]) {
  PendingOperations* operations = pending();
  const int ours =
      operations != nullptr ? operations->finish_done(all(count, requests)) : MPI_SUCCESS;
  return worse(ours, PMPI_Testsome(count, requests, done, indices, statuses));
}

int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  PendingOperations* operations = pending();
  const int ours = operations != nullptr ? operations->finish_done(all(1, &request)) : MPI_SUCCESS;
  return worse(ours, PMPI_Request_get_status(request, flag, status));
}
