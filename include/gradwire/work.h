// A collective in flight, and one that runs again and again.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

class WorkState;  // shared by the caller and the progress thread; internal

// Like std::jthread, the destructor cancels and waits: once a Work is gone nobody touches the
// tensors that were lent to it. Movable, one owner, used from one thread at a time.
class [[nodiscard]] Work {
 public:
  // Null: of an operation that is done.
  explicit Work(std::shared_ptr<WorkState> state);
  Work(Work&&) noexcept;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  bool done() const;
  // Blocks the calling thread and returns the operation's outcome. `deadline` bounds the waiting
  // only: on kTimedOut the operation goes on. (The operation's own deadline is in its options.)
  Status wait(std::optional<Deadline> deadline = std::nullopt);
  // Over NCCL: `stream` waits, this returns at once. What the host drives: wait(), for any stream.
  Status wait_on(const Stream& stream);
  // Finishes the whole communicator: peers cannot be un-sent.
  void cancel();
  // Of a recv from any source (kAnySource) that is done: the group rank it came from; else -1.
  int source() const;
  // For the library's own adapters; null: of an operation that was done at once.
  const std::shared_ptr<WorkState>& state() const { return state_; }

 private:
  void finish();
  std::shared_ptr<WorkState> state_;
};

// An operation that was checked and planned once (Communicator::prepare). Each start() runs it once
// more on the same memory, in the order of its communicator's operations like any other call. The
// memory stays lent while a run is under way; between two runs its owner may read and write it. The
// Work of one run must be done before the next. Movable; used from the communicator's thread.
class PersistentWork {
 public:
  // For implementations of Communicator: what one run does.
  explicit PersistentWork(std::function<Result<Work>()> run) : run_(std::move(run)) {}
  // The errors of the method that it stands for, but for bad arguments.
  Result<Work> start() { return run_(); }

 private:
  std::function<Result<Work>()> run_;
};

}  // namespace gradwire
