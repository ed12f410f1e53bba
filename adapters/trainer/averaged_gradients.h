// Gradients become their mean over all ranks, whole on each of them, while backward still runs.
#pragma once

#include "adapters/trainer/replicas.h"
#include "gradwire/aggregator.h"
#include "trainer/strategy/gradient_exchange.h"

namespace gradwire {

class AveragedGradients final : public GradientExchange {
 public:
  // Both are borrowed; the aggregator has the gradients in order of registration. takes_scaled: it
  // exchanges 16 bits as they are, times the loss scale (Demands::takes_scaled).
  AveragedGradients(Aggregator& aggregator, Replicas& replicas, bool takes_scaled)
      : aggregator_(aggregator), replicas_(replicas), takes_scaled_(takes_scaled) {}

  Status set_gradient_scale(double scale) override {
    return takes_scaled_ ? Status() : aggregator_.set_narrow_scale(scale);
  }

  // Every check_every-th step compares the parameters over ranks first: a replica that drifted ends
  // the job, naming the tensor. Residuals of specs with ef_rescale_lr=true follow the rate.
  Status before_step(double learning_rate) override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  Result<bool> arrived(int index, bool wait) override;
  Status finish(const Stream& stream) override;

 private:
  Aggregator& aggregator_;
  Replicas& replicas_;
  bool takes_scaled_;
};

}  // namespace gradwire
