// Gradients become their mean over all ranks, whole on each of them, while backward still runs.
#pragma once

#include "adapters/trainer/replicas.h"
#include "gradwire/aggregator.h"
#include "trainer/strategy/gradient_exchange.h"

namespace gradwire {

class AveragedGradients final : public GradientExchange {
 public:
  // Both are borrowed; the aggregator has the gradients in order of registration.
  AveragedGradients(Aggregator& aggregator, Replicas& replicas)
      : aggregator_(aggregator), replicas_(replicas) {}

  // Every check_every-th step compares the parameters over ranks first: a replica that drifted ends
  // the job, naming the tensor. Residuals of specs with ef_rescale_lr=true follow the rate.
  Status before_step(double learning_rate) override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  Result<bool> arrived(int index, bool wait) override;
  Status finish(const Stream& stream) override;

 private:
  Aggregator& aggregator_;
  Replicas& replicas_;
};

}  // namespace gradwire
