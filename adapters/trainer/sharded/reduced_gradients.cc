#include "adapters/trainer/sharded/reduced_gradients.h"

#include <utility>

#include "device/ops.h"

namespace gradwire {

Result<std::unique_ptr<ReducedGradients>> ReducedGradients::create(
    Communicator& communicator, const Registry& registry, const ShardedOptions& options,
    const TrainerMemory& memory, const TensorShards& layout, Replicas& replicas) {
  std::unique_ptr<ReducedGradients> made(new ReducedGradients(options, memory, layout, replicas));
  AggregatorOptions reduce = options.parallel.aggregator;
  reduce.form = AggregateForm::kReduceScatter;
  reduce.traffic = TrafficClass::kGradients;
  reduce.lean = made->drops_;
  auto reducing = Aggregator::create(communicator, registry, reduce);
  if (!reducing.has_value()) return reducing.error().with_context("sharded gradients");
  made->reduce_ = std::move(reducing).value();
  for (const NamedTensor& named : memory.gradients.named()) {
    GW_TRY(made->reduce_->add(named.name, named.tensor));
  }
  GW_ASSIGN(made->shard_, memory.places.device.allocate(
                              made->drops_ ? MemoryClass::kGradients : MemoryClass::kMainGradients,
                              static_cast<std::size_t>(layout.elems()) * sizeof(float)));
  return made;
}

void ReducedGradients::start() {
  for (int index = 0; drops_ && index < layout_.tensors(); ++index) memory_.gradients.drop(index);
}

std::span<float> ReducedGradients::shard() { return shard_floats(shard_); }

GradientPart ReducedGradients::part(int index) {
  const TensorSlice& slice = layout_.slices()[static_cast<std::size_t>(index)];
  return {slice.begin,
          ConstTensorView(shard_view(layout_.in_shard(shard(), index), shard_.device()))};
}

Status ReducedGradients::before_step(double learning_rate) {
  round_ = 0;
  GW_TRY(replicas_.count_step());
  return reduce_->set_learning_rate(learning_rate);
}

Status ReducedGradients::on_gradient(int index, TensorView, const Stream& stream) {
  GW_TRY(reduce_->ready(index, stream));
  if (!drops_) return {};
  to_take_.push_back(index);
  outstanding_ += static_cast<std::int64_t>(memory_.gradients.tensor(index).size_bytes());
  return take_arrived();
}

// The own part of a gradient that has arrived; its memory goes where the stage says so.
Status ReducedGradients::take(int index) {
  const std::span<float> came = layout_.in_whole(memory_.gradients.all(), index);
  const std::span<float> own = layout_.in_shard(shard(), index);
  if (round_ == 0) {
    GW_TRY(memory_.places.device.copy(came, own));
  } else {
    const Device device = shard_.device();
    GW_TRY(reduce(ReduceOp::kSum, shard_view(came, device), shard_view(own, device),
                  memory_.places.device.stream()));
  }
  if (!drops_) return {};
  outstanding_ -= static_cast<std::int64_t>(memory_.gradients.tensor(index).size_bytes());
  memory_.gradients.drop(index);
  return {};
}

// What has arrived, and where too much is on its way, what can arrive.
Status ReducedGradients::take_arrived() {
  while (!to_take_.empty()) {
    GW_ASSIGN(const bool there,
              reduce_->arrived(to_take_.front(), outstanding_ > most_outstanding_));
    if (!there) return {};
    GW_TRY(take(to_take_.front()));
    to_take_.pop_front();
  }
  return {};
}

Status ReducedGradients::finish(const Stream& stream) {
  GW_TRY(reduce_->finish(stream));
  if (!drops_) {
    for (int index = 0; index < layout_.tensors(); ++index) GW_TRY(take(index));
  }
  for (; !to_take_.empty(); to_take_.pop_front()) GW_TRY(take(to_take_.front()));
  ++round_;
  return {};
}

}  // namespace gradwire
