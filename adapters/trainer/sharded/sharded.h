// ZeRO: every rank steps its part of the parameters alone.
//
//   gradients    reduce-scatter: rank r gets the mean of its shards, compressed as for stage 0
//   optimizer    on the shards, kept in fp32: its state is 1/N of the whole
//   parameters   all-gather of the shards, exact or compressed; all ranks, the owner
//                too, hold what travelled, so replicas are bit-identical
//
// Stage 2 also gives a gradient's memory back as soon as its shard is reduced, while backward still
// runs: beside the shards at most kOutstanding buckets of gradients take memory.
// Stage 3 keeps no whole parameters either: layer_gather.h brings each layer's for its turn.
// With an offload the shards' parameters and their optimizer lie in the host's arena.
// With exact specs and sums in the same order (algorithm canonical; a ring, where every tensor is a
// bucket of its own) a step has the bits of stage 0's, but for norms (clipping, lamb), which are
// summed over shards.
// Source: Rajbhandari, Rasley, Ruwase, He, "ZeRO: memory optimizations toward training trillion
// parameter models", SC 2020, section 5.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "adapters/trainer/replicas.h"
#include "adapters/trainer/sharded/layer_gather.h"
#include "adapters/trainer/sharded/tensor_shards.h"
#include "gradwire/buffer.h"
#include "trainer/checkpoint/tensor_file.h"
#include "trainer/compute_parameters.h"
#include "trainer/memory/trainer_memory.h"
#include "trainer/optimizer.h"
#include "trainer/optimizers/chunked_step.h"
#include "trainer/read_back.h"
#include "trainer/step_kernels.h"

namespace gradwire {

struct ShardedOptions {
  int stage = 1;                 // 1 to 3
  DataParallelOptions parallel;  // aggregator.compressor: of the gradients, "none" or elementwise
  // What updated parameters travel as: the same kinds; at stage 3 none or cast.
  std::string parameters = "none";
  OptimizerOptions optimizer;
  Offload offload = Offload::kNone;  // kParameters at stage 3 alone, where both mean that
  std::int64_t offload_chunk = 1 << 18;
};

// Calls as of the trainer's hook and optimizer.
class ShardedHook final : public ReplicaHook, public Optimizer {
 public:
  // Buckets whose gradients are in work or being filled, at stage 2.
  static constexpr std::int64_t kOutstanding = 3;

  // Collective. As DataParallelHook::create(), of a trainer's memory; at stage 3 of one with
  // TrainingOptions::gated_parameters.
  static Result<std::unique_ptr<ShardedHook>> create(Communicator& communicator,
                                                     const Registry& registry,
                                                     const ShardedOptions& options,
                                                     const TrainerMemory& memory);

  // The parameters are what the shards start from, unless load_state() came before.
  Status start(ReplicaStart how) override;
  // At stage 3 there is nothing to compare but after gather_parameters().
  Status check_replicas(const std::string& when) override;
  void heed(Interruption* interruption) override { replicas_.heed(interruption); }
  Status gather_parameters() override;
  Result<std::optional<std::vector<TensorPart>>> own_parameters() override;
  Aggregator* gradient_averages() override { return reduce_.get(); }
  std::optional<GradientPart> average_part(int index) override;
  AggregateStats stats() const override;
  std::vector<std::string> warnings() const override;
  Optimizer* optimizer() override { return this; }
  LayerGate* gate() override { return layers_.get(); }

  Status before_step(double learning_rate) override;
  Result<bool> skip_step(bool overflow) override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  // The means of the own shards are there.
  Status before_optimizer_step(const Stream& stream) override;
  // The norm over all ranks' shards, and the own ones clipped; the trainer's gradients stay.
  Result<double> clip_gradients(std::span<float> gradients, double most) override;
  Status average(std::span<double> values) override { return replicas_.average(values); }
  Status start_average(std::span<double> values) override {
    return replicas_.start_average(values);
  }
  Status finish_average() override { return replicas_.finish_average(); }

  // `parameters` are the trainer's; `gradients` are not looked at.
  Status step(std::span<float> parameters, std::span<const float> gradients, double lr) override;
  // "<tensor>.shard" (the parameters in fp32) and the optimizer's own, of the own slices;
  // "sharded.steps"; what the exchanges keep, behind "reduce/" and "gather/".
  std::vector<NamedTensor> state() override;
  // As many ranks as now: bit for bit. Else slices are joined and cut anew, and the exchanges'
  // residuals are carried over as Aggregator::load_state() says.
  Status load_state(std::span<const std::vector<NamedTensor>> by_old_rank) override;
  void continue_from(std::int64_t steps) override { replicas_.continue_from(steps); }

  const TensorShards& layout() const { return layout_; }

 private:
  ShardedHook(Communicator& communicator, const ShardedOptions& options,
              const TrainerMemory& memory);
  Status open();
  Status open_exchanges(Communicator& communicator, const Registry& registry);
  Status take(int index);
  Status take_arrived();
  Status step_shard(double lr);
  Status to_whole(int index);
  bool gathers_layers() const { return options_.stage == 3; }
  std::vector<NamedTensor> own_slices();
  const MemoryArena& device() const { return memory_.places.device; }
  // Where shard() lies.
  const MemoryArena& shard_arena() const {
    return options_.offload != Offload::kNone ? memory_.places.host : device();
  }
  static TensorView view(std::span<float> of_shard, Device device);
  Result<double> clip_there(double most);
  Status sum_over_ranks(std::span<double> sums);
  std::span<float> shard() { return floats(shard_); }
  std::span<float> shard_gradients() { return floats(shard_grads_); }
  static std::span<float> floats(Buffer& buffer);

  ShardedOptions options_;
  TrainerMemory memory_;
  TensorShards layout_;
  Replicas replicas_;
  std::unique_ptr<Aggregator> reduce_;
  std::unique_ptr<Aggregator> gather_;   // stages 1 and 2
  std::unique_ptr<LayerGather> layers_;  // stage 3
  std::unique_ptr<Optimizer> inner_;
  std::optional<ChunkedStep> offloaded_;
  Buffer shard_;                        // parameters in fp32
  Buffer shard_grads_;                  // their gradients
  std::unique_ptr<StepKernels> there_;  // null on the host
  ReadBack square_;                     // of a norm on a device
  Buffer travelled_;                    // what own_parameters() shows where that is not shard_
  bool loaded_ = false;                 // shards are those of a checkpoint, not of start()
  bool whole_ = true;                   // the trainer holds all parameters
  std::int64_t saved_steps_ = 0;        // the optimizer's, as state() shows them
  std::array<double, 2> no_scales_{};
  std::deque<int> to_take_;       // handed over and not yet copied, oldest first
  std::int64_t outstanding_ = 0;  // bytes of them
};

}  // namespace gradwire
