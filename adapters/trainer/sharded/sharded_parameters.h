// Parameters that each have one owner, who steps them: the others have them from it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/sharded/layer_gather.h"
#include "adapters/trainer/sharded/sharded_options.h"
#include "adapters/trainer/sharded/tensor_shards.h"
#include "gradwire/aggregator.h"
#include "gradwire/buffer.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"
#include "trainer/memory/trainer_memory.h"
#include "trainer/optimizer.h"
#include "trainer/optimizers/chunked_step.h"
#include "trainer/read_back.h"
#include "trainer/step/tensor_sums.h"
#include "trainer/step_kernels.h"
#include "trainer/strategy/consensus.h"
#include "trainer/strategy/parameter_keeper.h"

namespace gradwire {

// The own parts of all tensors, the shard, lie in fp32 without gaps, on the host with an offload.
class ShardedParameters final : public ParameterKeeper {
 public:
  // Collective; layout, consensus and `gradients`, of the shard, are borrowed, as is the trainer's
  // memory.
  static Result<std::unique_ptr<ShardedParameters>> create(
      Communicator& communicator, const Registry& registry, const ShardedOptions& options,
      const TrainerMemory& memory, const TensorShards& layout, Consensus& consensus,
      std::span<float> gradients);
  // Before the first step: the shard becomes what the trainer holds, unless load() came before, and
  // from now on no more is held than the stage says.
  Status start();

  // Steps the shard; at stages 1 and 2 the trainer has all new parameters on return.
  Status step(double learning_rate) override;
  // The norm over all ranks' shards, and the own gradients clipped; the trainer's stay.
  Result<double> clip(double most) override;
  LayerGate* gate() override { return layers_.get(); }
  Status gather() override;
  Result<std::optional<std::vector<TensorPart>>> own_parameters() override;
  // Whether the trainer holds all parameters now.
  bool whole() const { return layers_ == nullptr || layers_->whole(); }

  // "<tensor>.shard" (the parameters in fp32) and the optimizer's own, of the own slices.
  std::vector<NamedTensor> own_slices();
  // "sharded.steps".
  NamedTensor steps_made();
  // What exchanges of parameters keep, behind "gather/".
  std::vector<NamedTensor> exchange_state();
  // own_slices() have been written to: takes the rest from every old rank's entries.
  Status load(std::span<const std::vector<NamedTensor>> by_old_rank);

  AggregateStats stats() const { return gather_ ? gather_->stats() : layers_->stats(); }
  std::vector<std::string> warnings() const {
    return gather_ ? gather_->warnings() : layers_->warnings();
  }

 private:
  ShardedParameters(const ShardedOptions& options, const TrainerMemory& memory,
                    const TensorShards& layout, Consensus& consensus, std::span<float> gradients)
      : options_(options),
        memory_(memory),
        layout_(layout),
        consensus_(consensus),
        gradients_(gradients) {}
  Status open_exchange(Communicator& communicator, const Registry& registry);
  Status allocate();
  Status to_whole(int index);
  Status step_shard(double lr);
  Result<double> clip_there(double most);
  // Of two sums for each tensor, over the ranks that hold any of it.
  Status sum_over_ranks(std::span<double> sums) {
    return sums_.alone() ? consensus_.sum(sums, Scope::kData)
                         : sums_.add_up(sums, 2, consensus_, Scope::kWorld);
  }
  Result<double> square_over_ranks(double own);
  const MemoryArena& device() const { return memory_.places.device; }
  // Where shard() lies.
  const MemoryArena& shard_arena() const {
    return options_.offload != Offload::kNone ? memory_.places.host : device();
  }
  std::span<float> shard() { return shard_floats(shard_); }

  ShardedOptions options_;
  TrainerMemory memory_;
  const TensorShards& layout_;
  Consensus& consensus_;
  std::span<float> gradients_;           // of the shard
  std::unique_ptr<Aggregator> gather_;   // stages 1 and 2
  std::unique_ptr<LayerGather> layers_;  // stage 3
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<ChunkedStep> offloaded_;
  Buffer shard_;                        // in fp32
  TensorSums sums_;                     // over the ranks of a model
  std::unique_ptr<StepKernels> there_;  // null on the host
  ReadBack square_;                     // of a norm on a device
  Buffer travelled_;                    // what own_parameters() shows where that is not shard_
  bool loaded_ = false;                 // the shard is a checkpoint's, not start()'s
  std::int64_t saved_steps_ = 0;        // the optimizer's, as state shows them
  std::array<double, 2> no_scales_{};
};

}  // namespace gradwire
