#include "adapters/trainer/averaged_gradients.h"

namespace gradwire {

Status AveragedGradients::before_step(double learning_rate) {
  // Here, since parameters may change as soon as gradients arrive.
  GW_TRY(replicas_.count_step());
  return aggregator_.set_learning_rate(learning_rate);
}

Status AveragedGradients::on_gradient(int index, TensorView, const Stream& stream) {
  return aggregator_.ready(index, stream);
}

Result<bool> AveragedGradients::arrived(int index, bool wait) {
  return aggregator_.arrived(index, wait);
}

Status AveragedGradients::finish(const Stream& stream) { return aggregator_.finish(stream); }

}  // namespace gradwire
