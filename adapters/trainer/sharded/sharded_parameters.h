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
#include "trainer/optimizers/chunked_step.h"
#include "trainer/optimizers/optimizer.h"
#include "trainer/step/step_gradients.h"
#include "trainer/step/tensor_sums.h"
#include "trainer/strategy/consensus.h"
#include "trainer/strategy/parameter_keeper.h"

namespace gradwire {

// The own parts of all tensors in fp32, the master, are a shard without gaps, on the host with an
// offload; or, where whole parameters in fp32 stay and travel exactly, those parts of them. In a
// precision of 16 bits the trainer's whole parameters are what the master is rounded to; at stage
// 3, where there are none, so is a second shard, from which layers' are gathered.
class ShardedParameters final : public ParameterKeeper {
 public:
  // Collective; communicator, layout, consensus and `gradients`, of the own parts, are borrowed, as
  // is the trainer's memory.
  static Result<std::unique_ptr<ShardedParameters>> create(
      Communicator& communicator, const Registry& registry, const ShardedOptions& options,
      const TrainerMemory& memory, const TensorShards& layout, Consensus& consensus,
      StepGradients& gradients);
  // Before the first step: the master becomes what the trainer holds, unless load() came before,
  // and from now on no more is held than the stage says. In a precision of 16 bits it becomes what
  // was drawn, where that is rounded to what the trainer holds.
  Status start();

  // Steps the shard; at stages 1 and 2 the trainer has all new parameters on return.
  Status step(double learning_rate) override;
  // The norm over all ranks' parts; the own ones are shortened.
  Result<double> clip(double most) override;
  Result<bool> finite() override { return gradients_.finite(); }
  LayerGate* gate() override { return layers_.get(); }
  Status gather() override;
  Result<std::optional<std::vector<TensorPart>>> own_parameters() override;
  Status gather_master(std::span<float> whole) override;
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
  ShardedParameters(Communicator& communicator, const ShardedOptions& options,
                    const TrainerMemory& memory, const TensorShards& layout, Consensus& consensus,
                    StepGradients& gradients)
      : communicator_(communicator),
        options_(options),
        memory_(memory),
        layout_(layout),
        consensus_(consensus),
        gradients_(gradients) {}
  Status open_exchange(const Registry& registry);
  Status allocate();
  Status take_master();
  bool narrow() const { return memory_.parameters.dtype() != DType::kF32; }
  bool away() const { return options_.offload != Offload::kNone; }
  // The master is a part of the trainer's parameters.
  bool in_place() const {
    return !narrow() && layers_ == nullptr && !away() && options_.parameters == "none";
  }
  TensorView master(int index) const;
  TensorView in_whole(int index) const;
  TensorView rounded(int index) const;
  Status take_first(int index);
  Status round(int index, const TensorView& to);
  Status to_whole(int index);
  Status step_master(double lr);
  template <typename Visit>
  Status over_tensors(Visit visit) const;
  Status copy_travelled();
  // Of two sums for each tensor, over the ranks that hold any of it.
  Status sum_over_ranks(std::span<double> sums) {
    return sums_.alone() ? consensus_.sum(sums, Scope::kData)
                         : sums_.add_up(sums, 2, consensus_, Scope::kWorld);
  }
  const MemoryArena& device() const { return memory_.places.device; }
  // Where the shards lie.
  const MemoryArena& shard_arena() const { return away() ? memory_.places.host : device(); }

  Communicator& communicator_;
  ShardedOptions options_;
  TrainerMemory memory_;
  const TensorShards& layout_;
  Consensus& consensus_;
  StepGradients& gradients_;
  std::unique_ptr<Aggregator> gather_;   // stages 1 and 2
  std::unique_ptr<LayerGather> layers_;  // stage 3
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<ChunkedStep> chunked_;  // with an offload, or of gradients in 16 bits
  Buffer shard_;                        // the master, in fp32; empty if in_place()
  Buffer rounded_;                      // the second shard, in 16 bits
  TensorSums sums_;                     // over the ranks of a model
  Buffer travelled_;                    // what own_parameters() shows where that is not the master
  bool loaded_ = false;                 // the master is a checkpoint's, not start()'s
  std::int64_t saved_steps_ = 0;        // the optimizer's, as state shows them
  std::array<double, 2> no_scales_{};
};

}  // namespace gradwire
