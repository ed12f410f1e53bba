#include "adapters/trainer/sharded/sharded_parameters.h"

#include <cmath>
#include <utility>

#include "adapters/trainer/sharded/shard_states.h"
#include "base/elements.h"
#include "base/text.h"
#include "device/host_copy.h"
#include "trainer/clipping.h"
#include "trainer/cuda/make_kernels.h"

namespace gradwire {
namespace {

constexpr const char* kSteps = "sharded.steps";
constexpr const char* kGather = "gather/";

}  // namespace

Result<std::unique_ptr<ShardedParameters>> ShardedParameters::create(
    Communicator& communicator, const Registry& registry, const ShardedOptions& options,
    const TrainerMemory& memory, const TensorShards& layout, Consensus& consensus,
    std::span<float> gradients) {
  std::unique_ptr<ShardedParameters> made(
      new ShardedParameters(options, memory, layout, consensus, gradients));
  GW_TRY(made->open_exchange(communicator, registry));
  GW_TRY(made->allocate());
  return made;
}

Status ShardedParameters::open_exchange(Communicator& communicator, const Registry& registry) {
  AggregatorOptions gather = options_.parallel.aggregator;
  gather.lean = options_.stage >= 2;
  gather.compressor = options_.parameters;
  if (options_.stage == 3) {
    GW_ASSIGN(layers_, LayerGather::create(communicator, registry, gather, memory_,
                                           [this](int index) { return to_whole(index); }));
    return {};
  }
  gather.form = AggregateForm::kAllGather;
  gather.traffic = TrafficClass::kParameters;
  auto gathering = Aggregator::create(communicator, registry, gather);
  if (!gathering.has_value()) return gathering.error().with_context("sharded parameters");
  gather_ = std::move(gathering).value();
  for (const NamedTensor& named : memory_.parameters.named()) {
    GW_TRY(gather_->add(named.name, named.tensor));
  }
  return {};
}

Status ShardedParameters::allocate() {
  const MemoryPlaces& places = memory_.places;
  const bool away = options_.offload != Offload::kNone;
  const MemoryArena& where = shard_arena();
  GW_ASSIGN(sums_, TensorSums::create(memory_.table, memory_.share));
  const auto over_shards = [this](std::span<double> sums) { return sum_over_ranks(sums); };
  GW_ASSIGN(optimizer_, make_optimizer(options_.optimizer, layout_.slices(), over_shards, where));
  GW_ASSIGN(there_, make_step_kernels(device().stream()));
  if (there_ != nullptr) {
    GW_ASSIGN(square_, ReadBack::create(device(), sizeof(double)));
  }
  const bool alone = layers_ != nullptr && !away;  // of these parameters there are no others
  GW_ASSIGN(shard_, where.allocate(alone ? MemoryClass::kParameters : MemoryClass::kMaster,
                                   static_cast<std::size_t>(layout_.elems()) * sizeof(float)));
  if (away) {
    GW_ASSIGN(offloaded_, ChunkedStep::create(places.host, MemoryClass::kOther, places.link,
                                              options_.offload_chunk, layout_.elems()));
  }
  return {};
}

Status ShardedParameters::start() {
  for (int index = 0; index < layout_.tensors(); ++index) {
    if (!loaded_) {
      GW_TRY(copy_between(layout_.in_whole(memory_.parameters.all(), index), device(),
                          layout_.in_shard(shard(), index), shard_arena()));
    }
    if (layers_ != nullptr) memory_.parameters.drop(index);
  }
  return wait_for(device().stream());
}

// The own part of a tensor goes where it travels from.
Status ShardedParameters::to_whole(int index) {
  const std::span<const float> own = layout_.in_shard(shard(), index);
  if (offloaded_) memory_.places.link->bytes_in += static_cast<std::int64_t>(own.size_bytes());
  return copy_between(own, shard_arena(), layout_.in_whole(memory_.parameters.all(), index),
                      device());
}

Status ShardedParameters::step_shard(double lr) {
  if (!offloaded_) return optimizer_->step(shard(), gradients_, lr);
  return offloaded_->run(*optimizer_, shard(), ChunkedStep::from(gradients_, device()), lr,
                         [](std::size_t, std::span<const float>) { return Status(); });
}

Status ShardedParameters::step(double learning_rate) {
  GW_TRY(step_shard(learning_rate));
  if (layers_ != nullptr) return {};
  for (int index = layout_.tensors(); index-- > 0;) {
    GW_TRY(to_whole(index));
    GW_TRY(gather_->ready(index, device().stream()));
  }
  return gather_->finish(device().stream());
}

Result<double> ShardedParameters::clip(double most) {
  if (there_ != nullptr) return clip_there(most);
  const double own = norm(gradients_);
  GW_ASSIGN(const double square, square_over_ranks(own * own));
  const double all = std::sqrt(square);
  clip_to(gradients_, all, most);
  return all;
}

// The square of the norm of all of the gradient, of whose part here it is `own`.
Result<double> ShardedParameters::square_over_ranks(double own) {
  if (sums_.alone()) {
    GW_TRY(consensus_.sum(std::span(&own, 1), Scope::kData));
    return own;
  }
  if (there_ != nullptr) {
    return Status(Code::kUnsupported, "clipping of shards of a part of a model on a CUDA device");
  }
  std::vector<double> squares;
  for (int index = 0; index < layout_.tensors(); ++index) {
    squares.push_back(sum_of_squares(layout_.in_shard(gradients_, index)));
  }
  return sums_.total(squares, consensus_, Scope::kWorld);
}

Result<double> ShardedParameters::clip_there(double most) {
  const std::span<double> square = square_.there<double>();
  GW_TRY(there_->sum_of_squares(gradients_, square));
  GW_ASSIGN(const std::span<const double> own, square_.read<double>());
  GW_ASSIGN(const double all, square_over_ranks(own[0]));
  GW_TRY(square_.write(std::span<const double>(&all, 1)));
  GW_TRY(there_->clip(square, most, gradients_));
  return std::sqrt(all);
}

Status ShardedParameters::gather() { return layers_ == nullptr ? Status() : layers_->gather_all(); }

Result<std::optional<std::vector<TensorPart>>> ShardedParameters::own_parameters() {
  std::optional<std::vector<TensorPart>> parts;
  if (layers_ == nullptr) return parts;
  std::span<float> own = shard();
  Device lies = shard_.device();
  if (options_.parameters != "none") {
    GW_ASSIGN(travelled_, device().allocate(MemoryClass::kOther, own.size_bytes()));
    own = shard_floats(travelled_);
    lies = travelled_.device();
    GW_TRY(layers_->visit([&](int index) {
      return device().copy(layout_.in_whole(memory_.parameters.all(), index),
                           layout_.in_shard(own, index));
    }));
  }
  parts.emplace();
  for (int index = 0; index < layout_.tensors(); ++index) {
    const TensorSlice& slice = layout_.slices()[static_cast<std::size_t>(index)];
    if (slice.elems == 0) continue;
    parts->push_back({slice.name, box_of(memory_.table[static_cast<std::size_t>(index)]),
                      slice.begin,
                      ConstTensorView(shard_view(layout_.in_shard(own, index), lies))});
  }
  return parts;
}

std::vector<NamedTensor> ShardedParameters::own_slices() {
  std::vector<NamedTensor> all;
  for (int index = 0; index < layout_.tensors(); ++index) {
    const TensorSlice& slice = layout_.slices()[static_cast<std::size_t>(index)];
    all.push_back(
        {slice.name + ".shard", shard_view(layout_.in_shard(shard(), index), shard_.device())});
  }
  for (NamedTensor& named : optimizer_->state()) all.push_back(std::move(named));
  return all;
}

NamedTensor ShardedParameters::steps_made() {
  saved_steps_ = optimizer_->steps();
  return {kSteps, view_of(std::span(&saved_steps_, 1))};
}

std::vector<NamedTensor> ShardedParameters::exchange_state() {
  std::vector<NamedTensor> all;
  if (layers_ != nullptr) {
    // What a gather of the other stages has: its steps and no scales. So they can go on from it.
    saved_steps_ = optimizer_->steps();
    all.push_back({std::string(kGather) + "aggregator.step", view_of(std::span(&saved_steps_, 1))});
    all.push_back(
        {std::string(kGather) + "aggregator.scales", view_of(std::span<double>(no_scales_))});
    return all;
  }
  for (NamedTensor& named : gather_->state()) all.push_back({kGather + named.name, named.tensor});
  return all;
}

Status ShardedParameters::load(std::span<const std::vector<NamedTensor>> by_old_rank) {
  GW_TRY(copy_entry({kSteps, view_of(std::span(&saved_steps_, 1))}, by_old_rank.front()));
  if (saved_steps_ < 0) {
    return {Code::kInvalidArgument, format("state '%s': %lld (expected 0 or more)", kSteps,
                                           static_cast<long long>(saved_steps_))};
  }
  optimizer_->set_steps(saved_steps_);
  if (gather_) GW_TRY(gather_->load_state(behind(kGather, by_old_rank)).with_context(kGather));
  loaded_ = true;
  return {};
}

}  // namespace gradwire
