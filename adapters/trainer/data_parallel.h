// Data parallelism for the bundled trainer: every rank holds the whole model and its share of the
// batch; gradients are averaged by an Aggregator while backward is still running.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradwire/aggregator.h"
#include "gradwire/communicator.h"
#include "gradwire/registry.h"
#include "trainer/hooks.h"

namespace gradwire {

struct DataParallelOptions {
  AggregatorOptions aggregator;
  std::int64_t check_every = 100;  // steps between comparisons of the replicas; 0: never
};

// How replicas become equal before the first step.
enum class ReplicaStart : std::uint8_t {
  kBroadcast,  // rank 0's parameters replace everybody's
  kCompare,    // all ranks made them alike; kRankMismatch names the first tensor that differs
};

// Calls come from the thread that trains, as the trainer's hooks are called.
class DataParallelHook final : public GradientHook {
 public:
  // Collective. `parameters` and `gradients` are views of the model, in order of registration,
  // equally many and equally named; both are lent for the hook's life, as is `communicator`, which
  // the hook uses for losses and for comparing replicas (the aggregator splits its own from it).
  static Result<std::unique_ptr<DataParallelHook>> create(Communicator& communicator,
                                                          const Registry& registry,
                                                          const DataParallelOptions& options,
                                                          std::vector<NamedTensor> parameters,
                                                          std::span<const NamedTensor> gradients);

  // Collective, once, before the first step.
  Status start(ReplicaStart how);

  // Residuals of specs with ef_rescale_lr=true follow the rate.
  Status before_step(double learning_rate) override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  // The means are there. Every check_every-th step compares the parameters over ranks first: a
  // replica that drifted ends the job, naming the tensor.
  Status before_optimizer_step(const Stream& stream) override;
  // A left fold in rank order, in double, then one multiplication by 1/size.
  Status average(std::span<double> values) override;

  // Collective: compares all parameters now.
  Status check_replicas(const std::string& when);

  Aggregator& aggregator() { return *aggregator_; }

 private:
  DataParallelHook(Communicator& communicator, std::int64_t check_every,
                   std::vector<NamedTensor> parameters, std::unique_ptr<Aggregator> aggregator);

  Communicator& communicator_;
  std::int64_t check_every_;
  std::int64_t step_ = 0;
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<Aggregator> aggregator_;
};

}  // namespace gradwire
