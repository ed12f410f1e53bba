// Lets MPI move on with what it has under way: most do that only inside their own functions.
#pragma once

#include <mpi.h>

#include <mutex>

namespace gradwire::mpi {

// Of a process; thread-safe where MPI is.
class MpiProgress {
 public:
  // Requires MPI to have been initialized. What it makes goes with MPI.
  MpiProgress();
  // Looks once. Nothing while another thread does.
  void advance();

 private:
  std::mutex mutex_;
  MPI_Request never_ = MPI_REQUEST_NULL;
};

}  // namespace gradwire::mpi
