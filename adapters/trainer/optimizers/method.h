// Methods that compress at the optimizer: what travels is a momentum or an update, not a gradient,
// so one object is both the exchange and the keeper that steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "adapters/trainer/distributed_strategy.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/optimizers/optimizer.h"

namespace gradwire {

struct MethodOptions {
  std::string name = "onebit_adam";  // zero_one_adam, onebit_lamb, demo, diloco
  // beta1, beta2, epsilon, weight_decay; momentum of demo (what is kept of the one before) and of
  // diloco's outer step.
  OptimizerOptions optimizer;
  // Of the dense exchange; its compressor is not looked at. Also check_every.
  DataParallelOptions parallel;
  // What momenta, updates or outer gradients travel as; empty: the method's own default.
  std::string compressor;
  MemoryArena memory = {};  // where momenta, variances and replicas of the model lie
  // onebit_adam, onebit_lamb: so many first steps are dense and learn the variance.
  // zero_one_adam: steps until the variance is learnt no more and ranks begin to step alone.
  std::int64_t freeze = 100;
  // zero_one_adam: updates of the variance, and exchanges of local steps, after which the distance
  // between two doubles; and the largest distance of the second kind, in steps.
  std::int64_t variance_doubles = 16;
  std::int64_t local_doubles = 16;
  std::int64_t local_most = 16;
  // demo: coefficients that a rank sends of a chunk of up to chunk x chunk.
  std::int64_t chunk = 64;
  std::int64_t topk = 32;
  // diloco: steps of every rank alone between two outer ones, and the outer rate.
  std::int64_t inner_steps = 100;
  double outer_lr = 0.7;
};

// The names of MethodOptions::name.
const std::vector<std::string>& method_names();

class Method : public DistributedStrategy, public GradientExchange, public ParameterKeeper {
 public:
  // What exchanges and steps work on; all of it lent for the method's life.
  struct Parts {
    Communicator* communicator = nullptr;  // of the replicas
    MethodOptions options;
    SliceTable slices;
    std::span<float> parameters;  // the trainer's, in order of registration without gaps
    std::vector<NamedTensor> gradients;
    std::unique_ptr<DataParallelStrategy> exact;  // gradients as they are
  };
  static Demands demands_of(const MethodOptions& options);

  Demands demands() const final { return demands_of(options_); }
  GradientExchange& exchange() final { return *this; }
  ParameterKeeper& keeper() final { return *this; }
  Consensus& consensus() final { return exact_->consensus(); }
  MeshGroups& groups() override { return exact_->groups(); }
  Status start(ReplicaStart how) override { return exact_->start(how); }
  Status check_replicas(const std::string& when) override { return exact_->check_replicas(when); }
  void heed(Interruption* interruption) override { exact_->heed(interruption); }
  AggregateStats stats() const override;
  // Gradients as they are, and all else as the optimizer's.
  TrafficBytes traffic_bytes() const override;
  std::vector<std::string> warnings() const override;
  Status step(double learning_rate) final {
    return make_step(parameters_, gradients_, learning_rate);
  }
  Status settle() final { return settle_at(parameters_); }
  // That were made.
  std::int64_t steps() const { return steps_; }

  // All that the method keeps: replicated tensors, those of this rank alone, "<name>.counters", and
  // of every exchange its aggregator's, behind "<exchange>/". Empty unless replicas_equal() and
  // between steps. Views are valid until the next step.
  std::vector<NamedTensor> state() override;
  // From the state() of every old rank, in rank order. As many as now: bit for bit. Else what was a
  // rank's own becomes the average over the old ones. Before the first step, or between steps.
  // kInvalidArgument names the entry that is missing or of another shape; the method is then not to
  // be used further.
  Status load_state(std::span<const std::vector<NamedTensor>> by_old_rank) override;
  void continue_from(std::int64_t steps) override { exact_->continue_from(steps); }

 protected:
  explicit Method(Parts parts);

  // x: the parameters, which are stepped; g: the gradients, as the exchange left them.
  virtual Status make_step(std::span<float> x, std::span<const float> g, double lr) = 0;
  // As ParameterKeeper::settle().
  virtual Status settle_at(std::span<float> /*x*/) { return {}; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

  struct Kept {
    NamedTensor named;
    bool local = false;  // f32: of this rank alone
  };
  virtual std::vector<Kept> kept() = 0;
  // After load_state() has written to what kept() and counters_ show.
  virtual Status loaded() { return {}; }

  // Collective: an aggregator over the gradients' memory, tensor by tensor; or all of it as one
  // tensor, "all".
  Result<Aggregator*> open_exchange(const std::string& name, const std::string& compressor,
                                    bool as_one = false);
  // All tensors at once, from the last to the first, and waits.
  static Status exchange_all(Aggregator& through, int tensors);

  const MethodOptions& options() const { return options_; }
  Communicator& communicator() { return *communicator_; }
  DataParallelStrategy& exact() { return *exact_; }
  const SliceTable& slices() const { return slices_; }
  std::int64_t elems() const { return slice_elems(slices_); }
  int tensors() const { return static_cast<int>(slices_.size()); }
  // All gradients, in order of registration without gaps.
  std::span<float> gradients() const { return gradients_; }
  std::span<float> gradient(int index) const { return part(gradients(), index); }
  template <typename T>
  std::span<T> part(std::span<T> all, int index) const {
    const TensorSlice& slice = slices_[static_cast<std::size_t>(index)];
    return all.subspan(static_cast<std::size_t>(slice.offset),
                       static_cast<std::size_t>(slice.elems));
  }
  float decay_of(int index) const {
    return slices_[static_cast<std::size_t>(index)].decays
               ? static_cast<float>(options_.optimizer.weight_decay)
               : 0.0F;
  }

  std::vector<std::int64_t> counters_ = {0};  // [0]: steps; of a method's own from [1] on

 private:
  Status load_kept(std::span<const std::vector<NamedTensor>> by_old_rank, const Kept& entry);
  Status load_exchange(std::span<const std::vector<NamedTensor>> by_old_rank,
                       const std::string& prefix, Aggregator& aggregator);

  Communicator* communicator_;
  MethodOptions options_;
  SliceTable slices_;
  std::vector<NamedTensor> tensors_;
  std::span<float> parameters_;
  std::span<float> gradients_;
  std::int64_t steps_ = 0;
  std::unique_ptr<DataParallelStrategy> exact_;
  std::vector<std::pair<std::string, std::unique_ptr<Aggregator>>> exchanges_;
};

// Collective. `parameters` and `gradients` as of DataParallelStrategy::create(); `table` is the
// model's. kInvalidArgument names the option, the value seen and the value wanted.
Result<std::unique_ptr<Method>> make_method(MeshGroups groups, const Registry& registry,
                                            const MethodOptions& options,
                                            const ParameterTable& table,
                                            std::vector<NamedTensor> parameters,
                                            const std::vector<NamedTensor>& gradients);

}  // namespace gradwire
