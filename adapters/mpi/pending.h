// Operations that gradwire carries behind requests of MPI's: generalized requests, which MPI calls
// done when it is told so. Whoever asks for them in MPI's waiting and testing functions tells it.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "adapters/mpi/arguments.h"
#include "adapters/mpi/member.h"
#include "gradwire/work.h"

namespace gradwire::mpi {

// Thread-safe, as far as MPI lets several threads ask for different requests.
class PendingOperations {
 public:
  struct Operation {
    Call call;
    MPI_Comm comm;
    Member* member;
    Work work;
    std::vector<FlatRows> rows;  // whose memory it uses; the last is where its result goes
    bool unpack;                 // into the program's memory, when it is done
  };

  // *request: a new one of MPI's. MPI_SUCCESS or MPI's error code.
  int add(Operation operation, MPI_Request* request);

  bool none() const { return count_.load(std::memory_order_relaxed) == 0; }
  bool has(MPI_Request request) const;
  // Waits until the operation behind `request` is done, lets MPI go on meanwhile, and tells MPI.
  // Nothing for a request of MPI's own. MPI_SUCCESS, or what the error handler was given.
  int finish(MPI_Request request);
  // Tells MPI of those of `requests` that are done, and waits for none.
  int finish_done(std::span<const MPI_Request> requests);
  // The communicator is about to go.
  void finish_all_of(const Member* member);

 private:
  struct Entry {
    MPI_Request request;
    Operation operation;
  };
  template <typename Wanted>
  std::optional<Entry> take(const Wanted& wanted);
  static int settle(Entry entry);

  mutable std::mutex mutex_;
  std::list<Entry> entries_;
  std::atomic<std::size_t> count_ = 0;  // of them
};

}  // namespace gradwire::mpi
