#include "adapters/trainer/data_parallel.h"

#include <utility>

#include "adapters/trainer/compressor_check.h"
#include "base/text.h"

namespace gradwire {
Demands DataParallelStrategy::demands_of(const DataParallelOptions& options) {
  Demands demands;
  demands.each_micro_batch = options.reduce_each;
  demands.takes_scaled = carries_scale(options.aggregator.compressor);
  return demands;
}

Result<std::unique_ptr<DataParallelStrategy>> DataParallelStrategy::create(
    MeshGroups groups, const Registry& registry, const DataParallelOptions& options,
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
  if (options.reduce_each) GW_TRY(check_no_feedback(options.aggregator.compressor));
  GW_ASSIGN(Communicator* const replicas, groups.group(MeshScope::kDp));
  GW_ASSIGN(auto aggregator, Aggregator::create(*replicas, registry, options.aggregator));
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
  return std::unique_ptr<DataParallelStrategy>(new DataParallelStrategy(
      *replicas, std::move(groups), options, std::move(parameters), std::move(aggregator)));
}

DataParallelStrategy::DataParallelStrategy(Communicator& replicas, MeshGroups groups,
                                           const DataParallelOptions& options,
                                           std::vector<NamedTensor> parameters,
                                           std::unique_ptr<Aggregator> aggregator)
    : demands_(demands_of(options)),
      consensus_(std::move(groups)),
      replicas_(replicas, std::move(parameters), options.check_every),
      aggregator_(std::move(aggregator)),
      exchange_(*aggregator_, replicas_, demands_.takes_scaled) {}

}  // namespace gradwire
