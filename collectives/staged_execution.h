// Several executions one after another, as one operation: through the memory of a host, between
// hosts, and through memory again.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/executor.h"
#include "collectives/runnable.h"

namespace gradwire {

class StagedExecution final : public Runnable {
 public:
  // route: of all ranks, should they have to be asked. Without stages it is done at once.
  StagedExecution(Route route, std::vector<std::unique_ptr<Runnable>> stages)
      : route_(std::move(route)), stages_(std::move(stages)) {}

  Result<bool> advance(Transport& transport, ScratchPool& pool) override;
  bool done() const override { return at_ == stages_.size(); }
  // All stages: whoever waits in the memory of a later one is to go on no more.
  void cancel(Transport& transport) override;
  bool settled(Transport& transport) override;
  void release(ScratchPool& pool) override;
  std::vector<int> waiting_for(const Transport& transport) const override;
  const Route& route() const override { return route_; }
  std::uint64_t bytes_sent() const override;
  int deserter() const override { return done() ? -1 : stages_[at_]->deserter(); }
  bool polls() const override { return !done() && stages_[at_]->polls(); }
  bool ready() const override { return !done() && stages_[at_]->ready(); }

 private:
  Route route_;
  std::vector<std::unique_ptr<Runnable>> stages_;
  std::size_t at_ = 0;
};

}  // namespace gradwire
