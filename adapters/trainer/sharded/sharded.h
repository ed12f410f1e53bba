// ZeRO, stages 1 and 2: every rank steps its part of the parameters alone.
//
//   gradients    reduce-scatter: rank r gets the mean of its shards, compressed as for stage 0
//   optimizer    on the shards, kept in fp32: its state is 1/N of the whole
//   parameters   all-gather of the shards, exact or compressed; all ranks, the owner
//                too, hold what travelled, so replicas are bit-identical
//
// Stage 2 also gives a gradient's memory back as soon as its shard is reduced, while backward still
// runs: beside the shards at most kOutstanding buckets of gradients take memory.
// With exact specs and sums in the same order (algorithm canonical; a ring, where every tensor is a
// bucket of its own) a step has the bits of stage 0's, but for norms (clipping, lamb), which are
// summed over shards.
// Source: Rajbhandari, Rasley, Ruwase, He, "ZeRO: memory optimizations toward training trillion
// parameter models", SC 2020, sections 5.1 and 5.2.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "adapters/trainer/replicas.h"
#include "adapters/trainer/sharded/tensor_shards.h"
#include "gradwire/buffer.h"
#include "trainer/optimizer.h"

namespace gradwire {

struct ShardedOptions {
  int stage = 1;                 // 1 or 2
  DataParallelOptions parallel;  // aggregator.compressor: of the gradients, "none" or elementwise
  std::string parameters = "none";  // what updated parameters travel as: the same kinds
  OptimizerOptions optimizer;
};

// Calls as of the trainer's hook and optimizer.
class ShardedHook final : public ReplicaHook, public Optimizer {
 public:
  // Buckets whose gradients are in work or being filled, at stage 2.
  static constexpr std::int64_t kOutstanding = 3;

  // Collective. As DataParallelHook::create(); `table` is the model's, and both lists lie in memory
  // as it says, without gaps.
  static Result<std::unique_ptr<ShardedHook>> create(Communicator& communicator,
                                                     const Registry& registry,
                                                     const ShardedOptions& options,
                                                     const ParameterTable& table,
                                                     const std::vector<NamedTensor>& parameters,
                                                     const std::vector<NamedTensor>& gradients);

  // The parameters are what the shards start from, unless load_state() came before.
  Status start(ReplicaStart how) override;
  Status check_replicas(const std::string& when) override { return replicas_.check(when); }
  AggregateStats stats() const override;
  std::vector<std::string> warnings() const override;
  Optimizer* optimizer() override { return this; }

  Status before_step(double learning_rate) override;
  Result<bool> skip_step(bool overflow) override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  // The means of the own shards are there.
  Status before_optimizer_step(const Stream& stream) override;
  // The norm over all ranks' shards, and the own ones clipped; the trainer's gradients stay.
  Result<double> clip_gradients(std::span<float> gradients, double most) override;
  Status average(std::span<double> values) override { return replicas_.average(values); }

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
              const ParameterTable& table, const std::vector<NamedTensor>& parameters,
              const std::vector<NamedTensor>& gradients);
  Status open(Communicator& communicator, const Registry& registry);
  Status take(int index);
  std::vector<NamedTensor> own_slices();
  Status take_arrived();
  std::span<float> shard() { return floats(shard_); }
  std::span<float> shard_gradients() { return floats(shard_grads_); }
  static std::span<float> floats(Buffer& buffer);

  ShardedOptions options_;
  TensorShards layout_;
  Replicas replicas_;
  std::vector<NamedTensor> gradients_;
  std::span<float> whole_parameters_;
  std::span<float> whole_gradients_;
  std::unique_ptr<Aggregator> reduce_;
  std::unique_ptr<Aggregator> gather_;
  std::unique_ptr<Optimizer> inner_;
  Buffer shard_;                  // parameters in fp32
  Buffer shard_grads_;            // their gradients
  bool loaded_ = false;           // shards are those of a checkpoint, not of start()
  std::int64_t saved_steps_ = 0;  // the optimizer's, as state() shows them
  std::deque<int> to_take_;       // handed over and not yet copied, oldest first
  std::int64_t outstanding_ = 0;  // bytes of them
};

}  // namespace gradwire
