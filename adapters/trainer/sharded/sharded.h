// ZeRO: every rank steps its part of the parameters alone.
//
//   gradients    reduce-scatter: rank r gets the mean of its shards, compressed as for stage 0
//   optimizer    on the shards, kept in fp32: its state is 1/N of the whole
//   parameters   all-gather of the shards, exact or compressed; all ranks, the owner
//                too, hold what travelled, so replicas are bit-identical
//
// Stage 2 also gives gradients' memory back early (reduced_gradients.h). Stage 3 keeps no whole
// parameters either: layer_gather.h brings each layer's for its turn. With an offload the shards'
// parameters and their optimizer lie in the host's arena.
// With exact specs and sums in the same order (algorithm canonical; a ring, where every tensor is a
// bucket of its own) a step has the bits of stage 0's, but for norms (clipping, lamb), which are
// summed over shards.
// Source: Rajbhandari, Rasley, Ruwase, He, "ZeRO: memory optimizations toward training trillion
// parameter models", SC 2020, section 5.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/distributed_strategy.h"
#include "adapters/trainer/group_consensus.h"
#include "adapters/trainer/replicas.h"
#include "adapters/trainer/sharded/reduced_gradients.h"
#include "adapters/trainer/sharded/sharded_options.h"
#include "adapters/trainer/sharded/sharded_parameters.h"
#include "adapters/trainer/sharded/tensor_shards.h"
#include "trainer/memory/trainer_memory.h"

namespace gradwire {

// Calls come from the thread that trains.
class ShardedStrategy final : public DistributedStrategy {
 public:
  static Demands demands_of(const ShardedOptions& options);
  // Collective. As DataParallelStrategy::create(), of the memory of a trainer that was made for
  // demands_of() the same options.
  static Result<std::unique_ptr<ShardedStrategy>> create(MeshGroups groups,
                                                         const Registry& registry,
                                                         const ShardedOptions& options,
                                                         const TrainerMemory& memory);

  Demands demands() const override { return demands_; }
  GradientExchange& exchange() override { return *gradients_; }
  ParameterKeeper& keeper() override { return *parameters_; }
  Consensus& consensus() override { return consensus_; }

  MeshGroups& groups() override { return consensus_.groups(); }
  // The parameters are what the shards start from, unless load_state() came before.
  Status start(ReplicaStart how) override;
  // At stage 3 there is nothing to compare but after ParameterKeeper::gather().
  Status check_replicas(const std::string& when) override;
  void heed(Interruption* interruption) override { consensus_.heed(interruption); }
  Aggregator* gradient_averages() override { return &gradients_->aggregator(); }
  std::optional<GradientPart> average_part(int index) override { return gradients_->part(index); }
  AggregateStats stats() const override;
  TrafficBytes traffic_bytes() const override;
  std::vector<std::string> warnings() const override;

  // As ShardedParameters has it; what the gradients' exchange keeps, behind "reduce/".
  std::vector<NamedTensor> state() override;
  // As many ranks as now: bit for bit. Else slices are joined and cut anew, and the exchanges'
  // residuals are carried over as Aggregator::load_state() says.
  Status load_state(std::span<const std::vector<NamedTensor>> by_old_rank) override;
  void continue_from(std::int64_t steps) override { replicas_.continue_from(steps); }

 private:
  ShardedStrategy(Communicator& replicas, MeshGroups groups, const ShardedOptions& options,
                  const TrainerMemory& memory);

  int stage_;
  Demands demands_;
  bool there_;                // gradients and parameters are on a device
  GroupConsensus consensus_;  // it has the communicators of all below
  TensorShards layout_;
  Replicas replicas_;
  std::unique_ptr<ReducedGradients> gradients_;
  std::unique_ptr<ShardedParameters> parameters_;
};

}  // namespace gradwire
