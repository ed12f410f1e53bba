#include "adapters/trainer/sharded/sharded.h"

#include <utility>

#include "adapters/trainer/sharded/shard_states.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr const char* kReduce = "reduce/";

}  // namespace

Demands ShardedStrategy::demands_of(const ShardedOptions& options) {
  Demands demands = DataParallelStrategy::demands_of(options.parallel);
  demands.own_optimizer = demands.clips = demands.holds_master = true;
  demands.gradients_pass = options.stage >= 2;
  demands.layer_by_layer = options.stage == 3;
  demands.tells_arrival = false;
  return demands;
}

Result<std::unique_ptr<ShardedStrategy>> ShardedStrategy::create(MeshGroups groups,
                                                                 const Registry& registry,
                                                                 const ShardedOptions& options,
                                                                 const TrainerMemory& memory) {
  GW_TRY(check_sharded_options(options, memory));
  GW_ASSIGN(Communicator* const replicas, groups.group(MeshScope::kDp));
  std::unique_ptr<ShardedStrategy> made(
      new ShardedStrategy(*replicas, std::move(groups), options, memory));
  GW_ASSIGN(made->gradients_, ReducedGradients::create(*replicas, registry, options, memory,
                                                       made->layout_, made->replicas_));
  GW_ASSIGN(made->parameters_,
            ShardedParameters::create(*replicas, registry, options, memory, made->layout_,
                                      made->consensus_, made->gradients_->own()));
  return made;
}

ShardedStrategy::ShardedStrategy(Communicator& replicas, MeshGroups groups,
                                 const ShardedOptions& options, const TrainerMemory& memory)
    : stage_(options.stage),
      demands_(demands_of(options)),
      there_(memory.places.device.device().space == MemorySpace::kCuda),
      consensus_(std::move(groups)),
      layout_(memory.table, replicas.rank(), replicas.size()),
      replicas_(replicas, memory.parameters.named(),
                options.stage == 3 ? 0 : options.parallel.check_every) {}

Status ShardedStrategy::start(ReplicaStart how) {
  GW_TRY(replicas_.start(how));
  gradients_->start();
  return parameters_->start();
}

Status ShardedStrategy::check_replicas(const std::string& when) {
  return parameters_->whole() ? replicas_.check(when) : Status();
}

AggregateStats ShardedStrategy::stats() const {
  return gradients_->aggregator().stats() + parameters_->stats();
}

TrafficBytes ShardedStrategy::traffic_bytes() const {
  TrafficBytes sent{};
  bytes_of(sent, TrafficClass::kGradients) = gradients_->aggregator().stats().wire_bytes;
  bytes_of(sent, TrafficClass::kParameters) = parameters_->stats().wire_bytes;
  return sent;
}

std::vector<std::string> ShardedStrategy::warnings() const {
  std::vector<std::string> all = gradients_->aggregator().warnings();
  if (there_ && stage_ > 1) {
    all.push_back(format("sharded training: stage %d on a device keeps the memory of whole %s",
                         stage_, stage_ == 2 ? "gradients" : "gradients and parameters"));
  }
  for (std::string& warning : parameters_->warnings()) {
    all.push_back("parameters: " + warning);
  }
  return all;
}

std::vector<NamedTensor> ShardedStrategy::state() {
  std::vector<NamedTensor> all = parameters_->own_slices();
  all.push_back(parameters_->steps_made());
  for (NamedTensor& named : gradients_->aggregator().state()) {
    all.push_back({kReduce + named.name, named.tensor});
  }
  for (NamedTensor& named : parameters_->exchange_state()) all.push_back(std::move(named));
  return all;
}

Status ShardedStrategy::load_state(std::span<const std::vector<NamedTensor>> by_old_rank) {
  if (by_old_rank.empty()) return {Code::kInvalidArgument, "no rank's state was given"};
  const Communicator& communicator = replicas_.communicator();
  for (const NamedTensor& own : parameters_->own_slices()) {
    GW_TRY(join_slices(own, by_old_rank, communicator.rank(), communicator.size()));
  }
  GW_TRY(parameters_->load(by_old_rank));
  return gradients_->aggregator().load_state(behind(kReduce, by_old_rank)).with_context(kReduce);
}

}  // namespace gradwire
