// Several executions one after another, as one operation: through the memory of a host, between
// hosts, and through memory again. A large tensor goes so piece by piece, a few of them at a time:
// while one is on its way between hosts, others are in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/engine/executor.h"
#include "collectives/engine/runnable.h"

namespace gradwire {

class StagedExecution final : public Runnable {
 public:
  // Of one piece, one after another.
  using Stages = std::vector<std::unique_ptr<Runnable>>;

  // route: of all ranks, should they have to be asked. At most `in_flight` pieces are under way, in
  // their order; stages of theirs that may not run side by side see to that themselves. Done at
  // once without stages.
  StagedExecution(Route route, std::vector<Stages> pieces, std::size_t in_flight);

  Result<bool> advance(Transport& transport, ScratchPool& pool) override;
  bool done() const override { return first_ == pieces_.size(); }
  // All stages: a rank that waits in the memory of a later one is to go on no more.
  void cancel(Transport& transport) override;
  bool settled(Transport& transport) override;
  void refuse() override;
  void release(ScratchPool& pool) override;
  std::vector<int> waiting_for(const Transport& transport) const override;
  const Route& route() const override { return route_; }
  std::uint64_t bytes_sent() const override;
  int closed_peer() const override;
  Awaited awaited() const override;
  bool ready() const override;

 private:
  struct Piece {
    Stages stages;
    std::size_t at = 0;
    bool done() const { return at == stages.size(); }
    Runnable& stage() const { return *stages[at]; }
  };
  Result<bool> advance(Piece& piece, bool alone, Transport& transport, ScratchPool& pool);
  // Whether `is` holds of the stage of any piece under way.
  template <typename Property>
  bool any_stage(const Property& is) const;
  // Of all stages that are not done.
  template <typename Act>
  void each_left(const Act& act) const;
  std::size_t end_of_window() const;

  Route route_;
  std::vector<Piece> pieces_;
  std::size_t in_flight_;
  std::size_t first_ = 0;         // that is not done
  std::uint64_t bytes_sent_ = 0;  // of stages that are done
};

}  // namespace gradwire
