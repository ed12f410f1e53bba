// Operations over two levels, between their call and their end, as the engine sees them: each is
// made of operations of its own, one behind the other on a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/engine/executor.h"
#include "collectives/engine/runnable.h"
#include "collectives/plan/lent_inputs.h"
#include "device/cuda/stream.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/work.h"

namespace gradwire {

// What one is made of. Work of the host's holds the stream back until it has ended (StreamGate); if
// it fails the stream goes on all the same, since what is behind it there must come past before it
// can be said to have left its tensors. So the ranks of a node would take sums that were never
// finished: each rank with a part sends a byte behind it, which says whether it was.
//
// Written by the caller before the engine has the operation; then read by the thread that drives.
class Levels {
 public:
  // places: ranks of the node that have a part, which are its first. Errors: those of `memory`.
  static Result<std::shared_ptr<Levels>> make(OwnMemory& memory, int places, Device device);

  // Work that the device runs.
  void add(Work work) { works_.push_back(std::move(work)); }
  // This rank's messages: what is enqueued on `stream` from now on runs when they have ended. The
  // host waits where the device cannot; the error is then theirs.
  Status add_messages(Work work, const Stream& stream);
  // What the ranks of the node exchange behind their messages: a byte of each place, on the device.
  TensorView bytes() const;
  // Enqueues what makes that of `place`, which is this rank's.
  Status write_byte(int place, const Stream& stream) const;
  // All is enqueued.
  Status finish(const Stream& stream);

  bool empty() const { return works_.empty(); }
  // Work that is enqueued on `stream` from now on runs after all of it.
  Status hold(const Stream& stream) const { return point_->before(stream); }
  // Whether the device has come past it, and no work is open. The error of the first that failed,
  // or of a byte: kPeerLost, naming the place in the node.
  Result<bool> passed() const;
  // Whether the device is through with it, or has failed.
  bool left() const;

 private:
  Levels(int places, Device device) : places_(places), device_(device) {}

  int places_;
  Device device_;
  std::vector<Work> works_;
  std::shared_ptr<std::byte> good_;       // pinned: 1 when this rank's messages have ended well
  std::shared_ptr<std::byte> on_device_;  // a byte of each place
  std::shared_ptr<std::byte> gathered_;   // pinned: these
  std::optional<cuda::Event> point_;
};

class LevelExecution final : public Runnable {
 public:
  // peers: the other ranks' job ranks, ascending.
  LevelExecution(std::shared_ptr<const Levels> levels, Route route, std::vector<int> peers)
      : levels_(std::move(levels)), route_(std::move(route)), peers_(std::move(peers)) {}

  Result<bool> advance(Transport&, ScratchPool&) override;
  bool done() const override { return done_; }
  // What it is made of are operations of the engine's, too.
  void cancel(Transport&) override {}
  bool settled(Transport&) override { return levels_->left(); }
  void release(ScratchPool&) override {}
  std::vector<int> waiting_for(const Transport&) const override { return peers_; }
  const Route& route() const override { return route_; }
  std::uint64_t bytes_sent() const override { return 0; }
  Awaited awaited() const override { return {.device = true}; }

 private:
  std::shared_ptr<const Levels> levels_;
  Route route_;
  std::vector<int> peers_;
  bool done_ = false;
};

}  // namespace gradwire
