#include "apps/train/run_strategy.h"

#include <utility>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "adapters/trainer/measured_gradients.h"
#include "adapters/trainer/optimizers/optimizer_spec.h"
#include "adapters/trainer/sharded/sharded.h"
#include "apps/train/run_options.h"

namespace gradwire {
namespace {

MethodOptions method_options(const TrainOptions& o, MethodOptions method, RankTrace* trace) {
  method.optimizer.weight_decay = o.weight_decay;
  method.parallel = parallel_options(o, trace);
  method.compressor = o.optimizer_compressor;
  return method;
}

Result<Demands> unmeasured_demands(const TrainOptions& o) {
  GW_ASSIGN(OptimizerChoice choice, parse_optimizer(o.optimizer));
  if (o.zero > 0) {
    GW_ASSIGN(const ShardedOptions options, sharded_options(o, choice.optimizer, nullptr));
    return ShardedStrategy::demands_of(options);
  }
  if (!choice.method) return DataParallelStrategy::demands_of(parallel_options(o, nullptr));
  return Method::demands_of(method_options(o, std::move(*choice.method), nullptr));
}

}  // namespace

Result<Demands> strategy_demands(const TrainOptions& o) {
  GW_ASSIGN(const Demands demands, unmeasured_demands(o));
  return o.measure_every > 0 ? MeasuredGradients::demands_of(demands) : demands;
}

Result<std::unique_ptr<DistributedStrategy>> make_strategy(const TrainOptions& o,
                                                           const Problem& problem,
                                                           MeshGroups groups, Trainer& trainer,
                                                           RankTrace* trace) {
  const Registry registry = Registry::builtin();
  const std::vector<NamedTensor> gradients = trainer.gradients();
  GW_ASSIGN(OptimizerChoice choice, parse_optimizer(o.optimizer));
  if (o.zero > 0) {
    GW_ASSIGN(const ShardedOptions options, sharded_options(o, choice.optimizer, trace));
    GW_ASSIGN(auto made,
              ShardedStrategy::create(std::move(groups), registry, options, trainer.memory()));
    return std::unique_ptr<DistributedStrategy>(std::move(made));
  }
  if (!choice.method) {
    GW_ASSIGN(auto made,
              DataParallelStrategy::create(std::move(groups), registry, parallel_options(o, trace),
                                           trainer.parameters(), gradients));
    return std::unique_ptr<DistributedStrategy>(std::move(made));
  }
  MethodOptions options = method_options(o, std::move(*choice.method), trace);
  options.memory = trainer.places().device;
  GW_ASSIGN(auto made, make_method(std::move(groups), registry, options, problem.model.parameters(),
                                   trainer.parameters(), gradients));
  return std::unique_ptr<DistributedStrategy>(std::move(made));
}

}  // namespace gradwire
