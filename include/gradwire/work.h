// Handles of operations: Work for one that was started, PersistentWork for one that is prepared
// once and started many times.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

class WorkState;  // internal: shared by the caller and the progress thread

// An operation that was started. The tensors given to it stay lent until it is done. Like
// std::jthread's, the destructor cancels an operation that is not done, and waits for its end:
// afterwards the library does not touch the tensors. Movable, one owner. Thread: one at a time.
class [[nodiscard]] Work {
 public:
  // For implementations of Communicator. A null state stands for an operation that is done.
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  Work(Work&&) noexcept = default;
  // Cancels and waits for the operation that this Work held, then takes over the other's.
  Work& operator=(Work&& other) noexcept;
  // cancel() and wait(), unless the operation is done.
  ~Work() {
    if (state_ != nullptr) finish();
  }

  // True once the operation has ended, with success or an error. Does not block.
  bool done() const;
  // Blocks until the operation has ended, and returns its outcome: the errors that Communicator
  // lists. `deadline` bounds this wait only (default: none beside the operation's own, which
  // OpOptions sets). Errors of the wait itself: kTimedOut at `deadline`, and the operation
  // continues; kUnsupported in a child of fork().
  Status wait(const std::optional<Deadline>& deadline = std::nullopt) {
    return state_ == nullptr ? Status() : wait_for_end(deadline);
  }
  // For operations over NCCL: makes `stream` wait for the operation, and returns at once. For all
  // others: wait(). Errors: as wait(); kInvalidArgument for a host stream over NCCL;
  // kInternal with the CUDA call that failed.
  Status wait_on(const Stream& stream);
  // Ends the operation, and the whole communicator with it, with kCancelled: messages that peers
  // have received cannot be taken back. Nothing if the operation is done.
  void cancel();
  // The group rank of the sender, for a finished recv from kAnySource; -1 otherwise.
  int source() const;
  // For adapters of the library. Null if the operation was done when it was started.
  const std::shared_ptr<WorkState>& state() const { return state_; }

 private:
  Status wait_for_end(const std::optional<Deadline>& deadline);
  void finish();
  std::shared_ptr<WorkState> state_;
};

// An operation that Communicator::prepare() has checked and planned. Each start() runs it again on
// the same memory, and counts as one operation of its communicator. The memory is lent while a run
// is in progress; between runs its owner may read and write it. Movable; must not outlive the
// communicator. Thread: the communicator's.
class PersistentWork {
 public:
  // For implementations of Communicator: `run` starts the operation once.
  explicit PersistentWork(std::function<Result<Work>()> run) : run_(std::move(run)) {}
  // Starts one run. The Work of the previous run must be done. Errors: those of the operation's
  // method in Communicator, except kInvalidArgument for its arguments, which prepare() has checked.
  Result<Work> start() { return run_(); }

 private:
  std::function<Result<Work>()> run_;
};

}  // namespace gradwire
