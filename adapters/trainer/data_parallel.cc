#include "adapters/trainer/data_parallel.h"

#include <utility>

#include "base/text.h"

namespace gradwire {

Result<std::unique_ptr<DataParallelHook>> DataParallelHook::create(
    Communicator& communicator, const Registry& registry, const DataParallelOptions& options,
    std::vector<NamedTensor> parameters, std::span<const NamedTensor> gradients) {
  if (parameters.size() != gradients.size()) {
    return Status(Code::kInvalidArgument,
                  format("data parallelism: %zu parameters, %zu gradients (expected equally many)",
                         parameters.size(), gradients.size()));
  }
  if (options.check_every < 0) {
    return Status(Code::kInvalidArgument,
                  format("data parallelism: check_every is %lld (expected 0 or more steps)",
                         static_cast<long long>(options.check_every)));
  }
  GW_ASSIGN(auto aggregator, Aggregator::create(communicator, registry, options.aggregator));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const TensorView& grad = gradients[i].tensor;
    if (gradients[i].name != parameters[i].name || grad.shape() != parameters[i].tensor.shape()) {
      return Status(Code::kInvalidArgument,
                    "data parallelism: gradient '" + gradients[i].name + "' " +
                        to_string(grad.shape()) + " does not belong to parameter '" +
                        parameters[i].name + "' " + to_string(parameters[i].tensor.shape()));
    }
    GW_TRY(aggregator->add(gradients[i].name, grad));
  }
  return std::unique_ptr<DataParallelHook>(new DataParallelHook(
      communicator, options.check_every, std::move(parameters), std::move(aggregator)));
}

DataParallelHook::DataParallelHook(Communicator& communicator, std::int64_t check_every,
                                   std::vector<NamedTensor> parameters,
                                   std::unique_ptr<Aggregator> aggregator)
    : replicas_(communicator, std::move(parameters), check_every),
      aggregator_(std::move(aggregator)) {}

Status DataParallelHook::before_step(double learning_rate) {
  // Here, since parameters may change as soon as gradients arrive.
  GW_TRY(count_step());
  return aggregator_->set_learning_rate(learning_rate);
}

Result<bool> DataParallelHook::skip_step(bool overflow) { return aggregator_->skip_step(overflow); }

Status DataParallelHook::on_gradient(int index, TensorView, const Stream& stream) {
  return aggregator_->ready(index, stream);
}

Status DataParallelHook::before_optimizer_step(const Stream& stream) {
  return aggregator_->finish(stream);
}

}  // namespace gradwire
