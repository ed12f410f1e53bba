// Operations that NCCL runs, between their call and their end, as the engine of the ranks' messages
// sees them: it asks from time to time whether they have passed, and ends them when it is late or
// a rank is lost.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/engine/executor.h"
#include "collectives/engine/runnable.h"
#include "comm/nccl/nccl_comm.h"
#include "device/cuda/stream.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"

namespace gradwire {

// Shared by the caller, who enqueues, and the thread that drives. The caller says once how that
// went.
class NcclFlight {
 public:
  // All is enqueued before this point, and sends so many bytes.
  void enqueued(cuda::Event point, std::uint64_t bytes);
  // Some of it may be on `stream`, which is the caller's until forget_stream() returns.
  void failed(Status why, const Stream& stream);
  void forget_stream();
  // True when it has run.
  Result<bool> passed() const;
  // Work that is enqueued on `stream` from now on runs after it; the host does not wait.
  // kInvalidArgument for a stream of the host.
  Status hold(const Stream& stream) const;
  // Of an operation that was given up, once NCCL has come back from its abort: whether the device
  // is through with it, or has failed. (NCCL itself waits for kernels in the abort of the last of a
  // process's ranks alone: those of the others, which are told to end, may be on their way out.)
  bool left();
  // Requires that it has passed.
  std::uint64_t bytes() const { return bytes_; }

 private:
  enum class State : std::uint8_t { kEnqueueing, kEnqueued, kFailed };
  mutable std::mutex mutex_;
  State state_ = State::kEnqueueing;
  std::optional<cuda::Event> point_;
  std::optional<Stream> stream_;  // that has no point yet
  std::uint64_t bytes_ = 0;
  Status why_;
};

class NcclExecution final : public Runnable {
 public:
  // peers: job ranks without which it cannot end, ascending.
  NcclExecution(std::shared_ptr<NcclComm> comm, std::shared_ptr<NcclFlight> flight, Route route,
                std::vector<int> peers)
      : comm_(std::move(comm)),
        flight_(std::move(flight)),
        route_(std::move(route)),
        peers_(std::move(peers)) {}

  Result<bool> advance(Transport&, ScratchPool&) override;
  bool done() const override { return done_; }
  void cancel(Transport&) override { (void)comm_->abort(0); }
  void refuse() override { (void)comm_->abort(0); }
  // Kernels of an aborted communicator have left.
  bool settled(Transport&) override {
    return comm_->abort(0).code() != Code::kTimedOut && flight_->left();
  }
  void release(ScratchPool&) override {}
  // NCCL does not say for whom.
  std::vector<int> waiting_for(const Transport&) const override { return peers_; }
  const Route& route() const override { return route_; }
  std::uint64_t bytes_sent() const override { return done_ ? flight_->bytes() : 0; }
  Awaited awaited() const override { return {.device = true}; }
  bool tend(Transport&, Deadline) override;

 private:
  std::shared_ptr<NcclComm> comm_;
  std::shared_ptr<NcclFlight> flight_;
  Route route_;
  std::vector<int> peers_;
  Status trouble_;
  bool done_ = false;
};

}  // namespace gradwire
