// A rendezvous over MPI itself: what one rank sets, it tells all others.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "comm/rendezvous/key_table.h"
#include "gradwire/rendezvous.h"

namespace gradwire::mpi {

// Ok, or kInternal with MPI's own words. `what`: the function that returned `code`.
Status checked(int code, const char* what);

// Used by one thread, the one that makes a communicator, and only between construction and
// settle(). Every get() also advances whatever else MPI has under way.
class ExchangeStore final : public KeyValueStore {
 public:
  // `comm` is lent, returns errors, and carries nothing else from construction until settle().
  ExchangeStore(MPI_Comm comm, int rank, int size);

  Status set(std::string_view key, ConstByteSpan value, Deadline deadline) override;
  Result<std::vector<std::byte>> get(std::string_view key, Deadline deadline) override;

  // Collective: takes what others have set and nobody has asked for, so that no message is left
  // over. The communicator may be used for other things afterwards.
  Status settle();

 private:
  struct Sending {
    std::vector<std::byte> bytes;
    std::vector<MPI_Request> requests;
  };
  // Takes one message if there is one.
  Result<bool> take();

  MPI_Comm comm_;
  int rank_;
  int size_;
  rendezvous::KeyTable table_;
  std::deque<Sending> sending_;
  std::vector<int> taken_;  // messages, by rank
};

}  // namespace gradwire::mpi
