// Gradients go to the owners of their parts: a reduce-scatter, compressed as any other exchange.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "adapters/trainer/distributed_strategy.h"
#include "adapters/trainer/replicas.h"
#include "adapters/trainer/sharded/sharded_options.h"
#include "adapters/trainer/sharded/tensor_shards.h"
#include "gradwire/aggregator.h"
#include "gradwire/buffer.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/memory/trainer_memory.h"
#include "trainer/step/step_gradients.h"
#include "trainer/step/stored_kernels.h"
#include "trainer/strategy/gradient_exchange.h"

namespace gradwire {

// After finish() own() has the means of the own parts. They lie where the whole gradients do, which
// stay; or, where the trainer's gradients pass tensor by tensor, in a shard of their own, so that a
// gradient's memory goes back as soon as its part is there, while backward still runs: beside the
// shard at most kBucketsOnTheirWay buckets of gradients take memory. A step's rounds are added up
// in a shard of fp32.
class ReducedGradients final : public GradientExchange {
 public:
  // Collective; layout and replicas are borrowed, as is the trainer's memory.
  static Result<std::unique_ptr<ReducedGradients>> create(
      Communicator& communicator, const Registry& registry, const ShardedOptions& options,
      const TrainerMemory& memory, const TensorShards& layout, Replicas& replicas);
  // Before the first step: from now on no more is held than the stage says.
  void start();

  // Every check_every-th step compares the parameters over ranks first.
  Status before_step(double learning_rate) override;
  Status set_gradient_scale(double scale) override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  Status finish(const Stream& stream) override;

  // Of the step that finish() has ended, in the layout's order.
  StepGradients& own() { return own_; }
  // Of gradient `index`, after finish(): times the loss scale where gradients bear it.
  GradientPart part(int index) const;
  Aggregator& aggregator() const { return *reduce_; }

 private:
  ReducedGradients(const ShardedOptions& options, const TrainerMemory& memory,
                   const TensorShards& layout, Replicas& replicas)
      : most_outstanding_(kBucketsOnTheirWay * options.parallel.aggregator.bucket_bytes),
        away_(options.offload != Offload::kNone),
        offload_chunk_(options.offload_chunk),
        memory_(memory),
        layout_(layout),
        replicas_(replicas) {}
  bool drops() const { return !memory_.gradients.stay(); }
  // Own parts have memory of their own.
  bool compact() const { return drops() || memory_.in_rounds; }
  TensorView handed(int index) const {
    return memory_.gradients.tensors[static_cast<std::size_t>(index)].tensor;
  }
  Status take_shard();
  Status take(int index);
  Status take_arrived();

  std::int64_t most_outstanding_;  // bytes
  bool away_;                      // the step is made on the host
  std::int64_t offload_chunk_;
  bool takes_scaled_ = true;
  TrainerMemory memory_;
  const TensorShards& layout_;
  Replicas& replicas_;
  std::unique_ptr<Aggregator> reduce_;
  Buffer shard_;                          // empty unless compact()
  std::unique_ptr<StoredKernels> there_;  // of a device that adds up rounds of 16 bits
  StepGradients own_;
  double scale_ = 1;
  int round_ = 0;
  std::deque<int> to_take_;       // handed over and not yet copied, oldest first
  std::int64_t outstanding_ = 0;  // bytes of them
};

}  // namespace gradwire
