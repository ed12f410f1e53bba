#include "adapters/trainer/data_parallel.h"

#include <utility>

#include "aggregate/replica_check.h"
#include "base/elements.h"
#include "base/text.h"

namespace gradwire {

Result<std::unique_ptr<DataParallelHook>> DataParallelHook::create(
    Communicator& communicator, const Registry& registry, const DataParallelOptions& options,
    std::vector<NamedTensor> parameters, std::span<const NamedTensor> gradients) {
  if (parameters.size() != gradients.size()) {
    return Status(Code::kInvalidArgument,
                  format("data parallelism: %zu parameters, %zu gradients (equally many wanted)",
                         parameters.size(), gradients.size()));
  }
  if (options.check_every < 0) {
    return Status(Code::kInvalidArgument,
                  format("data parallelism: check_every is %lld (0 or more steps wanted)",
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
    : communicator_(communicator),
      check_every_(check_every),
      parameters_(std::move(parameters)),
      aggregator_(std::move(aggregator)) {}

Status DataParallelHook::start(ReplicaStart how) {
  if (how == ReplicaStart::kCompare) return check_replicas("before the first step");
  for (const NamedTensor& parameter : parameters_) {
    GW_ASSIGN(Work work, communicator_.broadcast(parameter.tensor, 0));
    const Status status = work.wait();
    if (!status.ok()) return status.with_context("parameter '" + parameter.name + "'");
  }
  return {};
}

Status DataParallelHook::before_step(double learning_rate) {
  return aggregator_->set_learning_rate(learning_rate);
}

Result<bool> DataParallelHook::skip_step(bool overflow) { return aggregator_->skip_step(overflow); }

Status DataParallelHook::on_gradient(int index, TensorView, const Stream& stream) {
  return aggregator_->ready(index, stream);
}

Status DataParallelHook::before_optimizer_step(const Stream& stream) {
  GW_TRY(aggregator_->finish(stream));
  return count_step();
}

Status DataParallelHook::count_step() {
  // The parameters are still those that the steps before this one left.
  const std::int64_t done = step_++;
  if (check_every_ == 0 || done == 0 || done % check_every_ != 0) return {};
  return check_replicas(format("after step %lld", static_cast<long long>(done)));
}

Status DataParallelHook::average(std::span<double> values) {
  if (values.empty()) return {};
  GW_ASSIGN(Work work, communicator_.all_reduce(
                           view_of(values), ReduceOp::kMean,
                           {.algorithm = "canonical", .deadline = std::nullopt, .stream = {}}));
  return work.wait();
}

Status DataParallelHook::check_replicas(const std::string& when) {
  return gradwire::check_replicas(communicator_, parameters_, when);
}

}  // namespace gradwire
