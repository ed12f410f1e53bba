// Data parallelism for the bundled trainer: every rank holds the whole model and its share of the
// batch; gradients are averaged by an Aggregator while backward is still running.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/replica_hook.h"
#include "adapters/trainer/replicas.h"
#include "gradwire/aggregator.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"

namespace gradwire {

struct DataParallelOptions {
  AggregatorOptions aggregator;
  std::int64_t check_every = 100;  // steps between comparisons of the replicas; 0: never
};

// Calls come from the thread that trains, as the trainer's hooks are called.
class DataParallelHook final : public ReplicaHook {
 public:
  // Collective. `parameters` and `gradients` are views of the model, in order of registration,
  // equally many and equally named; both are lent for the hook's life, as is `communicator`, which
  // the hook uses for losses and for comparing replicas (the aggregator splits its own from it).
  static Result<std::unique_ptr<DataParallelHook>> create(Communicator& communicator,
                                                          const Registry& registry,
                                                          const DataParallelOptions& options,
                                                          std::vector<NamedTensor> parameters,
                                                          std::span<const NamedTensor> gradients);

  Status start(ReplicaStart how) override { return replicas_.start(how); }

  // Residuals of specs with ef_rescale_lr=true follow the rate.
  Status before_step(double learning_rate) override;
  // Residuals and all that coders keep stay as they were.
  Result<bool> skip_step(bool overflow) override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  Result<bool> arrived(int index, bool wait) override { return aggregator_->arrived(index, wait); }
  // The means are there. Every check_every-th step compares the parameters over ranks first: a
  // replica that drifted ends the job, naming the tensor.
  Status before_optimizer_step(const Stream& stream) override;
  Status average(std::span<double> values) override { return replicas_.average(values); }
  Status start_average(std::span<double> values) override {
    return replicas_.start_average(values);
  }
  Status finish_average() override { return replicas_.finish_average(); }

  // Counts a step, and compares the replicas where it is one of every check_every.
  // before_optimizer_step() does so itself.
  Status count_step() { return replicas_.count_step(); }
  Status check_replicas(const std::string& when) override { return replicas_.check(when); }
  void heed(Interruption* interruption) override { replicas_.heed(interruption); }
  AggregateStats stats() const override { return aggregator_->stats(); }
  std::vector<std::string> warnings() const override { return aggregator_->warnings(); }
  std::vector<NamedTensor> state() override { return aggregator_->state(); }
  Status load_state(std::span<const std::vector<NamedTensor>> by_old_rank) override {
    return aggregator_->load_state(by_old_rank);
  }
  void continue_from(std::int64_t steps) override { replicas_.continue_from(steps); }

  Aggregator* gradient_averages() override { return aggregator_.get(); }
  Aggregator& aggregator() { return *aggregator_; }

 private:
  DataParallelHook(Communicator& communicator, std::int64_t check_every,
                   std::vector<NamedTensor> parameters, std::unique_ptr<Aggregator> aggregator);

  Replicas replicas_;
  std::unique_ptr<Aggregator> aggregator_;
};

}  // namespace gradwire
