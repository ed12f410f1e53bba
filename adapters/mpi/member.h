// The gradwire communicator beside one MPI communicator.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <string>

#include "adapters/mpi/mpi_progress.h"
#include "adapters/mpi/settings.h"
#include "gradwire/communicator.h"

namespace gradwire::mpi {

// Of one rank. Its calls come from one thread at a time, as MPI wants of collectives on one
// communicator.
class Member {
 public:
  // One that leaves every call to MPI.
  Member() = default;
  // `progress` outlives it.
  Member(std::unique_ptr<Communicator> group, CallSet calls, MpiProgress* progress)
      : group_(std::move(group)), calls_(calls), progress_(progress) {}

  bool active() const { return group_ != nullptr; }
  // Alike on all ranks of the communicator.
  bool carries(Call call) const { return group_ != nullptr && (calls_ & set_of(call)) != 0; }
  // Both require carries() of some call.
  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  std::string describe() const { return group_->describe(); }

  // Runs the operation to its end. Meanwhile MPI goes on with what it has under way: a peer may
  // have to get a message that was sent before this call in order to come to it.
  Status run(const OpCall& call);
  // The same in two parts: in between gradwire's own thread moves the operation on.
  Result<Work> start(const OpCall& call) { return group_->start(call); }
  Status finish(Work& work) const;

  // The MPI error code for this text, which is made when it is first needed.
  int error_code(int error_class, const std::string& text);

 private:
  std::unique_ptr<Communicator> group_;
  CallSet calls_ = 0;
  MpiProgress* progress_ = nullptr;
  std::string error_text_;
  int error_code_ = MPI_SUCCESS;
};

// Collective over `comm`, an intracommunicator of several ranks of this MPI job; settings: rank 0's
// count for all. Where a rank has no room for another (room), or something failed on one, nobody
// carries anything: the first rank on which something failed gets its error, the others get a
// Member as by default.
Result<std::unique_ptr<Member>> join(MPI_Comm comm, const Settings& settings, bool room,
                                     MpiProgress* progress);

}  // namespace gradwire::mpi
