// Data parallelism for the bundled trainer: every rank holds the whole model and its share of the
// batch; gradients are averaged by an Aggregator while backward is still running.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/averaged_gradients.h"
#include "adapters/trainer/distributed_strategy.h"
#include "adapters/trainer/group_consensus.h"
#include "adapters/trainer/mesh/mesh_groups.h"
#include "adapters/trainer/replicas.h"
#include "gradwire/aggregator.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"

namespace gradwire {

struct DataParallelOptions {
  AggregatorOptions aggregator;
  // Every micro-batch's gradient is exchanged by itself, and averages are added up in fp32: as many
  // exchanges a step as there are micro-batches, and no sum of whole gradients before them. Not
  // with error feedback.
  bool reduce_each = false;
  std::int64_t check_every = 100;  // steps between comparisons of the replicas; 0: never
};

// Calls come from the thread that trains.
class DataParallelStrategy final : public DistributedStrategy {
 public:
  static Demands demands_of(const DataParallelOptions& options);
  // Collective. `parameters` and `gradients` are views of the model, in order of registration,
  // equally many and equally named; both are lent for the strategy's life, as is the groups' world.
  // Gradients are averaged, and replicas compared, over the group of MeshScope::kDp (the aggregator
  // splits its own communicator from that).
  static Result<std::unique_ptr<DataParallelStrategy>> create(
      MeshGroups groups, const Registry& registry, const DataParallelOptions& options,
      std::vector<NamedTensor> parameters, std::span<const NamedTensor> gradients);

  Demands demands() const override { return demands_; }
  GradientExchange& exchange() override { return exchange_; }
  ParameterKeeper& keeper() override { return keeper_; }
  Consensus& consensus() override { return consensus_; }

  MeshGroups& groups() override { return consensus_.groups(); }
  Status start(ReplicaStart how) override { return replicas_.start(how); }
  // Counts a step, and compares the replicas where it is one of every check_every. The exchange
  // does so itself.
  Status count_step() { return replicas_.count_step(); }
  Status check_replicas(const std::string& when) override { return replicas_.check(when); }
  void heed(Interruption* interruption) override { consensus_.heed(interruption); }
  AggregateStats stats() const override { return aggregator_->stats(); }
  TrafficBytes traffic_bytes() const override {
    TrafficBytes sent{};
    bytes_of(sent, TrafficClass::kGradients) = aggregator_->stats().wire_bytes;
    return sent;
  }
  std::vector<std::string> warnings() const override { return aggregator_->warnings(); }
  std::vector<NamedTensor> state() override { return aggregator_->state(); }
  Status load_state(std::span<const std::vector<NamedTensor>> by_old_rank) override {
    return aggregator_->load_state(by_old_rank);
  }
  void continue_from(std::int64_t steps) override { replicas_.continue_from(steps); }

  Aggregator* gradient_averages() override { return aggregator_.get(); }
  Aggregator& aggregator() { return *aggregator_; }

 private:
  DataParallelStrategy(Communicator& replicas, MeshGroups groups,
                       const DataParallelOptions& options, std::vector<NamedTensor> parameters,
                       std::unique_ptr<Aggregator> aggregator);

  Demands demands_;
  GroupConsensus consensus_;  // it has the communicators of all below
  Replicas replicas_;
  std::unique_ptr<Aggregator> aggregator_;
  AveragedGradients exchange_;
  ParameterKeeper keeper_;
};

}  // namespace gradwire
