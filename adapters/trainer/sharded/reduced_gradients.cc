#include "adapters/trainer/sharded/reduced_gradients.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "device/ops.h"
#include "trainer/cuda/make_kernels.h"

namespace gradwire {

Result<std::unique_ptr<ReducedGradients>> ReducedGradients::create(
    Communicator& communicator, const Registry& registry, const ShardedOptions& options,
    const TrainerMemory& memory, const TensorShards& layout, Replicas& replicas) {
  std::unique_ptr<ReducedGradients> made(new ReducedGradients(options, memory, layout, replicas));
  AggregatorOptions reduce = options.parallel.aggregator;
  reduce.form = AggregateForm::kReduceScatter;
  reduce.traffic = TrafficClass::kGradients;
  reduce.lean = options.stage >= 2;
  made->takes_scaled_ = DataParallelStrategy::demands_of(options.parallel).takes_scaled;
  auto reducing = Aggregator::create(communicator, registry, reduce);
  if (!reducing.has_value()) return reducing.error().with_context("sharded gradients");
  made->reduce_ = std::move(reducing).value();
  for (const NamedTensor& named : memory.gradients.tensors) {
    GW_TRY(made->reduce_->add(named.name, named.tensor));
  }
  GW_TRY(made->take_shard());
  return made;
}

Status ReducedGradients::take_shard() {
  const MemoryArena& device = memory_.places.device;
  const DType handed_over = memory_.gradients.tensors.front().tensor.dtype();
  const DType dtype = memory_.in_rounds ? DType::kF32 : handed_over;
  std::vector<TensorView> parts;
  if (compact()) {
    const bool sums = memory_.in_rounds && (handed_over != DType::kF32 || !drops());
    GW_ASSIGN(shard_, device.allocate(sums ? MemoryClass::kMainGradients : MemoryClass::kGradients,
                                      static_cast<std::size_t>(layout_.elems()) * size_of(dtype)));
  }
  for (int index = 0; index < layout_.tensors(); ++index) {
    parts.push_back(compact() ? layout_.in_shard(shard_, dtype, index)
                              : layout_.in_tensor(handed(index), index));
  }
  GW_ASSIGN(own_, StepGradients::create(device, std::move(parts),
                                        {away_ ? &memory_.places.host : nullptr,
                                         std::min(offload_chunk_, layout_.elems())}));
  if (memory_.in_rounds && handed_over != DType::kF32) {
    GW_ASSIGN(there_, make_stored_kernels(precision_of(handed_over), device.stream()));
  }
  return {};
}

void ReducedGradients::start() {
  for (int index = 0; drops() && index < layout_.tensors(); ++index) {
    memory_.gradients.passing.drop(index);
  }
}

GradientPart ReducedGradients::part(int index) const {
  const TensorSlice& slice = layout_.slices()[static_cast<std::size_t>(index)];
  return {slice.begin, ConstTensorView(own_.part(index))};
}

Status ReducedGradients::set_gradient_scale(double scale) {
  scale_ = scale;
  return takes_scaled_ ? Status() : reduce_->set_narrow_scale(scale);
}

Status ReducedGradients::before_step(double learning_rate) {
  round_ = 0;
  own_.begin_step(scale_);
  GW_TRY(replicas_.count_step());
  return reduce_->set_learning_rate(learning_rate);
}

Status ReducedGradients::on_gradient(int index, TensorView grad, const Stream& stream) {
  GW_TRY(reduce_->ready(index, stream));
  if (!drops()) return {};
  to_take_.push_back(index);
  outstanding_ += static_cast<std::int64_t>(grad.bytes().size());
  return take_arrived();
}

// The own part of a gradient that has arrived; its memory goes where gradients pass.
Status ReducedGradients::take(int index) {
  const TensorView came = layout_.in_tensor(handed(index), index);
  const TensorView own = own_.part(index);
  const Stream stream = memory_.places.device.stream();
  if (came.empty()) {
  } else if (round_ > 0 && came.dtype() == DType::kF32) {
    GW_TRY(reduce(ReduceOp::kSum, came, own, stream));
  } else if (round_ > 0) {
    GW_TRY(add(precision_of(came.dtype()), halves_of(came), floats_of(own), there_.get()));
  } else if (came.dtype() != own.dtype()) {
    GW_TRY(cast(came, own, stream));
  } else {
    GW_TRY(copy_bytes(came.bytes(), came.device(), own.bytes(), own.device(), stream));
  }
  if (!drops()) return {};
  outstanding_ -= static_cast<std::int64_t>(handed(index).bytes().size());
  memory_.gradients.passing.drop(index);
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
  for (int index = 0; compact() && !drops() && index < layout_.tensors(); ++index) {
    GW_TRY(take(index));
  }
  for (; !to_take_.empty(); to_take_.pop_front()) GW_TRY(take(to_take_.front()));
  ++round_;
  return {};
}

}  // namespace gradwire
