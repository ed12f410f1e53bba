#include "adapters/trainer/sharded/sharded_parameters.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "adapters/trainer/sharded/shard_states.h"
#include "base/elements.h"
#include "base/text.h"
#include "device/host_copy.h"
#include "device/ops.h"
#include "trainer/precision.h"

namespace gradwire {
namespace {

constexpr const char* kSteps = "sharded.steps";
constexpr const char* kGather = "gather/";

}  // namespace

Result<std::unique_ptr<ShardedParameters>> ShardedParameters::create(
    Communicator& communicator, const Registry& registry, const ShardedOptions& options,
    const TrainerMemory& memory, const TensorShards& layout, Consensus& consensus,
    StepGradients& gradients) {
  std::unique_ptr<ShardedParameters> made(
      new ShardedParameters(communicator, options, memory, layout, consensus, gradients));
  GW_TRY(made->open_exchange(registry));
  GW_TRY(made->allocate());
  return made;
}

Status ShardedParameters::open_exchange(const Registry& registry) {
  AggregatorOptions gather = options_.parallel.aggregator;
  gather.lean = options_.stage >= 2;
  gather.compressor = options_.parameters;
  if (options_.stage == 3) {
    GW_ASSIGN(layers_, LayerGather::create(communicator_, registry, gather, memory_,
                                           [this](int index) { return to_whole(index); }));
    return {};
  }
  gather.form = AggregateForm::kAllGather;
  gather.traffic = TrafficClass::kParameters;
  auto gathering = Aggregator::create(communicator_, registry, gather);
  if (!gathering.has_value()) return gathering.error().with_context("sharded parameters");
  gather_ = std::move(gathering).value();
  for (const NamedTensor& named : memory_.parameters.named()) {
    GW_TRY(gather_->add(named.name, named.tensor));
  }
  return {};
}

Status ShardedParameters::allocate() {
  const MemoryArena& where = shard_arena();
  GW_ASSIGN(sums_, TensorSums::create(memory_.table, memory_.share));
  const auto over_shards = [this](std::span<double> sums) { return sum_over_ranks(sums); };
  GW_ASSIGN(optimizer_, make_optimizer(options_.optimizer, layout_.slices(), over_shards, where));
  const auto elems = static_cast<std::size_t>(layout_.elems());
  if (!in_place()) {
    // Of these parameters there are no others.
    const bool alone = layers_ != nullptr && !away() && !narrow();
    GW_ASSIGN(shard_, where.allocate(alone ? MemoryClass::kParameters : MemoryClass::kMaster,
                                     elems * sizeof(float)));
  }
  if (layers_ != nullptr && narrow()) {
    GW_ASSIGN(rounded_, where.allocate(MemoryClass::kParameters, elems * sizeof(std::uint16_t)));
  }
  const bool wide = memory_.gradients.tensors.front().tensor.dtype() == DType::kF32;
  if (!away() && wide) return {};
  // A device's two passes want tensors whole.
  const bool whole =
      optimizer_->two_passes() && device().device().space == MemorySpace::kCuda && !away();
  GW_ASSIGN(chunked_,
            ChunkedStep::create(where, away() ? MemoryClass::kOther : MemoryClass::kWorkspace,
                                away() ? memory_.places.link : nullptr,
                                whole ? layout_.elems() : options_.offload_chunk, layout_.elems()));
  return {};
}

// The own part of a tensor: of the master, of the trainer's whole parameters, of the second shard.
TensorView ShardedParameters::master(int index) const {
  return in_place() ? in_whole(index) : layout_.in_shard(shard_, DType::kF32, index);
}
TensorView ShardedParameters::in_whole(int index) const {
  return layout_.in_tensor(memory_.parameters.view(index), index);
}
TensorView ShardedParameters::rounded(int index) const {
  return layout_.in_shard(rounded_, memory_.parameters.dtype(), index);
}

Status ShardedParameters::start() {
  GW_TRY(take_master());
  for (int index = 0; layers_ != nullptr && index < layout_.tensors(); ++index) {
    if (narrow()) GW_TRY(round(index, rounded(index)));
    memory_.parameters.drop(index);
  }
  return wait_for(device().stream());
}

Status ShardedParameters::take_master() {
  for (int index = 0; !loaded_ && !in_place() && index < layout_.tensors(); ++index) {
    if (narrow()) {
      GW_TRY(take_first(index));
    } else {
      GW_TRY(copy_between(floats_of(in_whole(index)), device(), floats_of(master(index)),
                          shard_arena()));
    }
  }
  return {};
}

// What all start from, or, where the trainer holds something else, that.
Status ShardedParameters::take_first(int index) {
  const TensorSlice& slice = layout_.slices()[static_cast<std::size_t>(index)];
  std::vector<float> first(
      static_cast<std::size_t>(memory_.table[static_cast<std::size_t>(index)].shape.elems()));
  memory_.first_values(index, first);
  const std::span<float> own = std::span(first).subspan(static_cast<std::size_t>(slice.begin),
                                                        static_cast<std::size_t>(slice.elems));
  GW_ASSIGN(const HostCopy held, HostCopy::of(in_whole(index)));
  std::vector<std::uint16_t> there(own.size());
  if (!own.empty()) std::memcpy(there.data(), held.bytes().data(), held.bytes().size());
  std::vector<std::uint16_t> here(own.size());
  std::vector<float> wide(own.size());
  const Precision precision = precision_of(memory_.parameters.dtype());
  store(precision, own, here);
  gradwire::load(precision, there, wide);
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = here[i] == there[i] ? own[i] : wide[i];
  return write_from_host(std::as_bytes(own), master(index));
}

// The own part of a tensor of the master is rounded to where passes, or gathers, read it.
Status ShardedParameters::round(int index, const TensorView& to) {
  const Precision precision = precision_of(to.dtype());
  const TensorView from = master(index);
  const bool leaves = away() && layers_ == nullptr;
  if (leaves) memory_.places.link->bytes_in += static_cast<std::int64_t>(to.bytes().size());
  if (from.device() == to.device()) {
    return store(precision, floats_of(from), halves_of(to), shard_arena().stream());
  }
  std::vector<std::uint16_t> going(static_cast<std::size_t>(from.elems()));
  store(precision, floats_of(from), going);
  return write_from_host(std::as_bytes(std::span(going)), to);
}

// It goes where it travels from.
Status ShardedParameters::to_whole(int index) {
  const TensorView to = in_whole(index);
  if (narrow() && layers_ == nullptr) return round(index, to);
  const TensorView from = narrow() ? rounded(index) : master(index);
  if (away()) memory_.places.link->bytes_in += static_cast<std::int64_t>(from.bytes().size());
  return copy_bytes(from.bytes(), from.device(), to.bytes(), to.device(), device().stream());
}

// visit(index, own part of the master, its place among all) for all tensors.
template <typename Visit>
Status ShardedParameters::over_tensors(Visit visit) const {
  for (int index = 0; index < layout_.tensors(); ++index) {
    const std::int64_t first = layout_.slices()[static_cast<std::size_t>(index)].offset;
    GW_TRY(visit(index, floats_of(master(index)), first));
  }
  return {};
}

Status ShardedParameters::step_master(double lr) {
  if (chunked_) {
    const auto read = [this](std::size_t first, std::span<float> part) {
      return away() ? gradients_.read_to_host(first, part) : gradients_.read(first, part);
    };
    const TensorView all = shard_.tensor(Shape::vector(layout_.elems()), DType::kF32);
    return chunked_->run(*optimizer_, floats_of(all), {read, gradients_.width()}, lr,
                         [](std::size_t, std::span<const float>) { return Status(); });
  }
  GW_TRY(optimizer_->begin_step(lr));
  GW_TRY(over_tensors([this](int index, std::span<float> x, std::int64_t first) {
    return optimizer_->step_part(x, gradients_.values(index), first);
  }));
  if (!optimizer_->two_passes()) return {};
  GW_TRY(optimizer_->end_pass());
  return over_tensors([this](int, std::span<float> x, std::int64_t first) {
    return optimizer_->end_part(x, first);
  });
}

Status ShardedParameters::step(double learning_rate) {
  travelled_ = Buffer();
  GW_TRY(step_master(learning_rate));
  for (int index = layout_.tensors(); index-- > 0;) {
    if (layers_ != nullptr) {
      if (narrow()) GW_TRY(round(index, rounded(index)));
      continue;
    }
    if (!in_place()) GW_TRY(to_whole(index));
    GW_TRY(gather_->ready(index, device().stream()));
  }
  return layers_ != nullptr ? Status() : gather_->finish(device().stream());
}

Result<double> ShardedParameters::clip(double most) {
  GW_ASSIGN(const std::vector<double> squares, gradients_.squares());
  const Scope scope = sums_.alone() ? Scope::kData : Scope::kWorld;
  GW_ASSIGN(const double square, sums_.total(squares, consensus_, scope));
  const double all = std::sqrt(square);
  GW_TRY(gradients_.shorten(all, most));
  return all;
}

Status ShardedParameters::gather() { return layers_ == nullptr ? Status() : layers_->gather_all(); }

Status ShardedParameters::gather_master(std::span<float> whole) {
  for (int index = 0; index < layout_.tensors(); ++index) {
    const ParameterInfo& info = memory_.table[static_cast<std::size_t>(index)];
    const TensorView all = view_of(whole.subspan(static_cast<std::size_t>(info.offset),
                                                 static_cast<std::size_t>(info.shape.elems())));
    GW_ASSIGN(const HostCopy own, HostCopy::of(master(index)));
    const ConstTensorView own_view(own.bytes().data(), master(index).shape(), DType::kF32);
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      counts.push_back(piece(info.shape.elems(), communicator_.size(), rank).size());
    }
    GW_ASSIGN(Work work, communicator_.all_gather_v(own_view, all, counts));
    GW_TRY(work.wait().with_context("parameter '" + info.name + "'"));
  }
  return {};
}

Result<std::optional<std::vector<TensorPart>>> ShardedParameters::own_parameters() {
  std::optional<std::vector<TensorPart>> parts;
  if (layers_ == nullptr && !narrow()) return parts;
  const bool travels = options_.parameters != "none";
  if (travels) GW_TRY(copy_travelled());
  parts.emplace();
  for (int index = 0; index < layout_.tensors(); ++index) {
    const TensorSlice& slice = layout_.slices()[static_cast<std::size_t>(index)];
    if (slice.elems == 0) continue;
    const TensorView own =
        travels ? layout_.in_shard(travelled_, DType::kF32, index) : master(index);
    parts->push_back({slice.name, box_of(memory_.table[static_cast<std::size_t>(index)]),
                      slice.begin, ConstTensorView(own)});
  }
  return parts;
}

// What passes see of the own parts, in fp32.
Status ShardedParameters::copy_travelled() {
  travelled_ = Buffer();
  GW_ASSIGN(travelled_,
            device().allocate(MemoryClass::kOther,
                              static_cast<std::size_t>(layout_.elems()) * sizeof(float)));
  const auto copy = [this](int index) {
    const TensorView from = in_whole(index);
    const TensorView to = layout_.in_shard(travelled_, DType::kF32, index);
    if (narrow()) return cast(from, to, device().stream());
    return copy_bytes(from.bytes(), from.device(), to.bytes(), to.device(), device().stream());
  };
  if (layers_ != nullptr) return layers_->visit(copy);
  for (int index = 0; index < layout_.tensors(); ++index) GW_TRY(copy(index));
  return {};
}

std::vector<NamedTensor> ShardedParameters::own_slices() {
  std::vector<NamedTensor> all;
  for (int index = 0; index < layout_.tensors(); ++index) {
    const TensorSlice& slice = layout_.slices()[static_cast<std::size_t>(index)];
    all.push_back({slice.name + ".shard", master(index)});
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
