// Gradients go to the owners of their parts: a reduce-scatter, compressed as any other exchange.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "adapters/trainer/distributed_strategy.h"
#include "adapters/trainer/replicas.h"
#include "adapters/trainer/sharded/sharded_options.h"
#include "adapters/trainer/sharded/tensor_shards.h"
#include "gradwire/aggregator.h"
#include "gradwire/buffer.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"
#include "trainer/memory/trainer_memory.h"
#include "trainer/strategy/gradient_exchange.h"

namespace gradwire {

// After finish() shard() has the means of the own parts, added up in fp32 over the step's rounds.
// From stage 2 on a gradient's memory goes back as soon as its part is there, while backward still
// runs: beside the shard at most kOutstanding buckets of gradients take memory.
class ReducedGradients final : public GradientExchange {
 public:
  // Buckets whose gradients are in work or being filled, from stage 2 on.
  static constexpr std::int64_t kOutstanding = 3;

  // Collective; layout and replicas are borrowed, as is the trainer's memory.
  static Result<std::unique_ptr<ReducedGradients>> create(
      Communicator& communicator, const Registry& registry, const ShardedOptions& options,
      const TrainerMemory& memory, const TensorShards& layout, Replicas& replicas);
  // Before the first step: from now on no more is held than the stage says.
  void start();

  // Every check_every-th step compares the parameters over ranks first.
  Status before_step(double learning_rate) override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  Status finish(const Stream& stream) override;

  // The own parts of all gradients, without gaps, as the layout has them; on the gradients' device.
  std::span<float> shard();
  // Of gradient `index`, after finish().
  GradientPart part(int index);
  Aggregator& aggregator() const { return *reduce_; }

 private:
  ReducedGradients(const ShardedOptions& options, const TrainerMemory& memory,
                   const TensorShards& layout, Replicas& replicas)
      : drops_(options.stage >= 2),
        most_outstanding_(kOutstanding * options.parallel.aggregator.bucket_bytes),
        memory_(memory),
        layout_(layout),
        replicas_(replicas) {}
  Status take(int index);
  Status take_arrived();

  bool drops_;
  std::int64_t most_outstanding_;  // bytes
  TrainerMemory memory_;
  const TensorShards& layout_;
  Replicas& replicas_;
  std::unique_ptr<Aggregator> reduce_;
  Buffer shard_;
  int round_ = 0;
  std::deque<int> to_take_;       // handed over and not yet copied, oldest first
  std::int64_t outstanding_ = 0;  // bytes of them
};

}  // namespace gradwire
