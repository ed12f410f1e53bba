// One operation in shared memory on its way, in turns that never block.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/engine/executor.h"
#include "collectives/engine/runnable.h"
#include "collectives/shm/channel.h"
#include "collectives/shm/moves.h"

namespace gradwire {

class ShmExecution final : public Runnable {
 public:
  // Operation n of the channel.
  ShmExecution(ShmChannel& channel, const ShmMoves& moves, ShmCall call, std::uint64_t n);

  // Whether step() would go on, as far as the other ranks' progress tells.
  bool met() const;
  // As advance(); needs neither transport nor scratch memory.
  Result<bool> step();
  // The engine runs it from now on; before, its caller may. The channel is the one above; the route
  // is that of its messages, should ranks have to be asked.
  void hand_over(std::shared_ptr<ShmChannel> channel, Route route);

  Result<bool> advance(Transport&, ScratchPool&) override;
  bool done() const override { return phase_ == Phase::kDone; }
  void cancel(Transport&) override { channel_->give_up(); }
  bool settled(Transport&) override { return true; }
  void refuse() override { channel_->give_up(); }
  void release(ScratchPool&) override;
  std::vector<int> waiting_for(const Transport& transport) const override;
  int closed_peer() const override;
  const Route& route() const override { return route_; }
  std::uint64_t bytes_sent() const override { return bytes_sent_; }
  Awaited awaited() const override { return {.memory = true}; }
  bool ready() const override;

 private:
  // Enter: wait for this operation's turn, and for all to have entered the one before.
  // Gather: wait for all to have entered. Direct, slots: the work. Leave: wait for all to have
  // finished with this rank's tensors.
  enum class Phase : std::uint8_t { kEnter, kGather, kDirect, kLeave, kSlots, kDone };

  ShmPlace place() const { return {call_, *channel_, n_}; }
  bool root_alone() const { return awaited_ == ShmMoves::Awaited::kRootAlone; }
  // Whether this rank needs what rank q has.
  bool awaits(int q) const {
    return awaited_ == ShmMoves::Awaited::kAll ||
           (root_alone() ? q == call_.root
                         : channel_->rank() == call_.root || q == channel_->rank());
  }
  bool has(int q) const;
  int closed_too_early() const;
  int strange_elsewhere() const;
  int job_rank(int q) const {
    return route_.group ? (*route_.group)[static_cast<std::size_t>(q)] : q;
  }
  void go_on(Phase phase);
  ShmReach& reach_before();
  void enter();
  Status gather();
  Status check_notices();
  Status mismatch(int q, const ShmNotice& theirs);
  void work_directly();
  void work_in_slots();
  void skip_empty_actions();
  void finish();

  // Actions on slots: put, combine and take in turn, each for a later part than the next.
  std::int64_t lag() const { return moves_->combines() ? 2 : 1; }
  std::int64_t kinds() const { return lag() + 1; }
  std::int64_t part_of_action(std::int64_t action) const {
    return action / kinds() - action % kinds();
  }
  std::int64_t action_of(std::int64_t part, std::int64_t kind) const {
    return (part + kind) * kinds() + kind;
  }
  static std::uint32_t step_of(std::int64_t action) {
    return static_cast<std::uint32_t>(action) + 2;
  }

  ShmChannel* channel_;
  std::shared_ptr<ShmChannel> kept_;  // once handed over
  const ShmMoves* moves_;
  ShmCall call_;
  std::uint64_t n_;
  Route route_;
  Phase phase_ = Phase::kEnter;
  bool small_ = false;
  ShmMoves::Awaited awaited_ = ShmMoves::Awaited::kAll;  // of others in a small one
  bool handed_over_ = false;
  mutable int met_ = 0;  // ranks below are known to have what is waited for
  int stranger_ = -1;    // group rank that runs something else
  int unread_ = -1;      // group rank whose memory is no longer there: wait for what is said of it
  std::int64_t parts_ = 0;
  std::int64_t action_ = 0;
  std::uint64_t wanted_n_ = 0;  // in slots: what all must have reached
  std::uint32_t wanted_step_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace gradwire
