// What the intercepted functions share: one Shim a process, from MPI_Init until MPI_Finalize
// begins.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adapters/mpi/arguments.h"
#include "adapters/mpi/member.h"
#include "adapters/mpi/pending.h"
#include "adapters/mpi/recorder.h"
#include "adapters/mpi/settings.h"

namespace gradwire::mpi {

class Shim {
 public:
  // To be called when MPI_Init has succeeded. Where the environment asks for nonsense, the job ends
  // with a message.
  static void start();
  // Null before start(), after MPI has ended, and where MPI was started by a function that is not
  // intercepted. MPI lets programs call collectives only in between.
  static Shim* get();

  ~Shim();
  Shim(const Shim&) = delete;
  Shim& operator=(const Shim&) = delete;

  // This rank's part in `comm`, which becomes a gradwire communicator when its first intercepted
  // collective comes: all ranks make that call, whatever its arguments. Null for no communicator.
  Member* member_of(MPI_Comm comm);
  // The same without making one: null before the first of those calls.
  Member* known_member_of(MPI_Comm comm) const;
  // Null unless calls are recorded.
  Recorder* recorder() { return supervision_.record_folder.empty() ? nullptr : &recorder_; }
  PendingOperations& pending() { return pending_; }
  void count(Call call, bool carried, std::int64_t bytes);
  // Through the communicator's error handler; returns the code, if that returns.
  int raise(MPI_Comm comm, Member& member, Call call, const Status& status);

  // The communicator that it belongs to is freed.
  void forget(const Member* member);
  // Says goodbye to the other ranks, and reports where asked to. No MPI function is called: MPI
  // holds locks meanwhile.
  void end();

 private:
  struct Tally {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> bytes{0};
  };

  Shim(const Settings& settings, Supervision supervision);
  void report() const;
  void warn(const Status& failure);

  Settings settings_;
  Supervision supervision_;
  Recorder recorder_;
  PendingOperations pending_;
  int pid_;
  int rank_ = 0;
  int keyval_ = MPI_KEYVAL_INVALID;       // of Members
  int self_keyval_ = MPI_KEYVAL_INVALID;  // its end is MPI's end
  int error_class_ = MPI_ERR_OTHER;
  MpiProgress progress_;
  std::array<Tally, kCalls> carried_;
  std::array<Tally, kCalls> left_;

  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Member>> members_;
  std::size_t carrying_ = 0;  // of members_, those with a gradwire communicator
  int ever_ = 0;              // such communicators since the start
  std::string first_;         // describes the first of them
  std::string warned_;
};

// One intercepted call, as long as it lives: whether gradwire carries it, and what is counted and
// recorded.
class Interception {
 public:
  // May wait for the other ranks where this is their communicator's first such call.
  Interception(Call call, MPI_Comm comm);
  // For a call that must not wait for anybody: gradwire carries it only where an earlier call, the
  // same on all ranks, has made it a communicator.
  static Interception of_nonblocking(Call call, MPI_Comm comm);
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;
  ~Interception();

  // As far as the communicator goes; its arguments may yet speak against it.
  bool possible() const { return member_ != nullptr && member_->carries(call_); }
  // Of the communicator; 0 where there is none.
  int size() const;
  // These require possible().
  int rank() const { return member_->rank(); }
  // Runs the operation; MPI_SUCCESS, or what the error handler was given.
  int carry(const OpCall& operation, std::int64_t bytes);
  // The same of an operation that is only a part of the call, and counts for nothing.
  int run(const OpCall& operation);
  // Starts the operation: *request is done when it is, and `unpack` has run after it. `rows`, whose
  // memory it may use, live as long.
  int start(const OpCall& operation, std::int64_t bytes, MPI_Request* request,
            std::vector<FlatRows> rows = {}, bool unpack = false);
  // MPI carries it.
  void leave(std::int64_t bytes);

 private:
  Interception(Call call, MPI_Comm comm, Shim* shim, Member* member);

  Call call_;
  MPI_Comm comm_;
  Shim* shim_;
  Member* member_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
  std::int64_t bytes_ = 0;
  bool carried_ = false;
};

}  // namespace gradwire::mpi
