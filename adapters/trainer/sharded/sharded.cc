#include "adapters/trainer/sharded/sharded.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "device/host_copy.h"
#include "trainer/clipping.h"
#include "trainer/cuda/make_kernels.h"

namespace gradwire {
namespace {

// Gathers by layers keep nothing between steps, and two ranks must not draw differently after a
// checkpoint: plain rounding, or nothing at all.
Status check_gathered(const std::string& compressor) {
  GW_ASSIGN(const std::vector<SpecRule> rules, parse_spec_rules(compressor));
  for (const SpecRule& rule : rules) {
    for (const Spec& stage : rule.spec) {
      const bool plain = stage.name == "none" || stage.name == "cast";
      const bool feeds_back = std::ranges::any_of(
          stage.params, [](const auto& param) { return param.first.starts_with("ef"); });
      if (plain && !feeds_back) continue;
      return {Code::kInvalidArgument, "sharded training, stage 3: parameters as '" + compressor +
                                          "' (expected none or cast, without error feedback)"};
    }
  }
  return {};
}

Status check(const ShardedOptions& options, const TrainerMemory& memory) {
  if (options.stage < 1 || options.stage > 3) {
    return {Code::kInvalidArgument,
            format("sharded training: stage %d (expected 1 to 3)", options.stage)};
  }
  if (options.stage < 3 && options.offload == Offload::kParameters) {
    return {Code::kInvalidArgument, format("sharded training: parameters offloaded at stage %d "
                                           "(expected to offload the optimizer, or stage 3)",
                                           options.stage)};
  }
  if (options.offload != Offload::kNone && options.optimizer.name == "lamb") {
    return {Code::kInvalidArgument,
            "lamb, which needs whole tensors, is offloaded (expected sgd, nesterov or adamw)"};
  }
  if (memory.parameters.size() == 0) {
    return {Code::kInvalidArgument, "sharded training: a model without parameters"};
  }
  return options.stage == 3 ? check_gathered(options.parameters) : Status();
}

}  // namespace

Result<std::unique_ptr<ShardedHook>> ShardedHook::create(Communicator& communicator,
                                                         const Registry& registry,
                                                         const ShardedOptions& options,
                                                         const TrainerMemory& memory) {
  GW_TRY(check(options, memory));
  std::unique_ptr<ShardedHook> hook(new ShardedHook(communicator, options, memory));
  GW_TRY(hook->open_exchanges(communicator, registry));
  GW_TRY(hook->open());
  return hook;
}

ShardedHook::ShardedHook(Communicator& communicator, const ShardedOptions& options,
                         const TrainerMemory& memory)
    : options_(options),
      memory_(memory),
      layout_(memory.table, communicator.rank(), communicator.size()),
      replicas_(communicator, memory.parameters.named(),
                options.stage == 3 ? 0 : options.parallel.check_every) {}

Status ShardedHook::open_exchanges(Communicator& communicator, const Registry& registry) {
  AggregatorOptions reduce = options_.parallel.aggregator;
  reduce.form = AggregateForm::kReduceScatter;
  reduce.traffic = TrafficClass::kGradients;
  reduce.lean = options_.stage >= 2;
  auto reducing = Aggregator::create(communicator, registry, reduce);
  if (!reducing.has_value()) return reducing.error().with_context("sharded gradients");
  reduce_ = std::move(reducing).value();
  for (const NamedTensor& named : memory_.gradients.named()) {
    GW_TRY(reduce_->add(named.name, named.tensor));
  }
  AggregatorOptions gather = reduce;
  gather.compressor = options_.parameters;
  if (gathers_layers()) {
    GW_ASSIGN(layers_, LayerGather::create(communicator, registry, gather, memory_,
                                           [this](int index) { return to_whole(index); }));
    return {};
  }
  gather.form = AggregateForm::kAllGather;
  gather.traffic = TrafficClass::kParameters;
  auto gathering = Aggregator::create(communicator, registry, gather);
  if (!gathering.has_value()) return gathering.error().with_context("sharded parameters");
  gather_ = std::move(gathering).value();
  for (const NamedTensor& named : replicas_.parameters()) {
    GW_TRY(gather_->add(named.name, named.tensor));
  }
  return {};
}

Status ShardedHook::open() {
  const MemoryPlaces& places = memory_.places;
  const bool away = options_.offload != Offload::kNone;
  const MemoryArena& where = shard_arena();
  const auto over_shards = [this](std::span<double> sums) { return sum_over_ranks(sums); };
  GW_ASSIGN(inner_, make_optimizer(options_.optimizer, layout_.slices(), over_shards, where));
  GW_ASSIGN(there_, make_step_kernels(device().stream()));
  if (there_ != nullptr) {
    GW_ASSIGN(square_, ReadBack::create(device(), sizeof(double)));
  }
  const auto bytes = static_cast<std::size_t>(layout_.elems()) * sizeof(float);
  const bool alone = gathers_layers() && !away;  // of these parameters there are no others
  GW_ASSIGN(shard_, where.allocate(alone ? MemoryClass::kParameters : MemoryClass::kMaster, bytes));
  GW_ASSIGN(shard_grads_, places.device.allocate(options_.stage == 1 ? MemoryClass::kMainGradients
                                                                     : MemoryClass::kGradients,
                                                 bytes));
  if (away) {
    GW_ASSIGN(offloaded_, ChunkedStep::create(places.host, MemoryClass::kOther, places.link,
                                              options_.offload_chunk, layout_.elems()));
  }
  return {};
}

std::span<float> ShardedHook::floats(Buffer& buffer) {
  const ByteSpan bytes = buffer.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// From now on nobody holds more than the stage says.
Status ShardedHook::start(ReplicaStart how) {
  GW_TRY(replicas_.start(how));
  for (int index = 0; index < layout_.tensors(); ++index) {
    if (!loaded_) {
      GW_TRY(copy_between(layout_.in_whole(memory_.parameters.all(), index), device(),
                          layout_.in_shard(shard(), index), shard_arena()));
    }
    if (options_.stage >= 2) memory_.gradients.drop(index);
    if (gathers_layers()) memory_.parameters.drop(index);
  }
  whole_ = !gathers_layers();
  return wait_for(device().stream());
}

Status ShardedHook::check_replicas(const std::string& when) {
  return whole_ ? replicas_.check(when) : Status();
}

Status ShardedHook::gather_parameters() {
  if (whole_) return {};
  whole_ = true;
  return layers_->gather_all();
}

AggregateStats ShardedHook::stats() const {
  return reduce_->stats() + (gather_ ? gather_->stats() : layers_->stats());
}

std::optional<GradientPart> ShardedHook::average_part(int index) {
  const TensorSlice& slice = layout_.slices()[static_cast<std::size_t>(index)];
  return GradientPart{slice.begin, ConstTensorView(view(layout_.in_shard(shard_gradients(), index),
                                                        shard_grads_.device()))};
}

std::vector<std::string> ShardedHook::warnings() const {
  std::vector<std::string> all = reduce_->warnings();
  if (there_ != nullptr && options_.stage > 1) {
    all.push_back(format("sharded training: stage %d on a device keeps the memory of whole %s",
                         options_.stage,
                         options_.stage == 2 ? "gradients" : "gradients and parameters"));
  }
  for (std::string& warning : gather_ ? gather_->warnings() : layers_->warnings()) {
    all.push_back("parameters: " + warning);
  }
  return all;
}

Status ShardedHook::before_step(double learning_rate) {
  whole_ = !gathers_layers();
  return reduce_->set_learning_rate(learning_rate);
}

Result<bool> ShardedHook::skip_step(bool overflow) { return reduce_->skip_step(overflow); }

Status ShardedHook::on_gradient(int index, TensorView, const Stream& stream) {
  GW_TRY(reduce_->ready(index, stream));
  if (options_.stage < 2) return {};
  to_take_.push_back(index);
  outstanding_ += static_cast<std::int64_t>(memory_.gradients.tensor(index).size_bytes());
  return take_arrived();
}

// The own part of a gradient that has arrived; its memory goes where the stage says so.
Status ShardedHook::take(int index) {
  GW_TRY(device().copy(layout_.in_whole(memory_.gradients.all(), index),
                       layout_.in_shard(shard_gradients(), index)));
  if (options_.stage < 2) return {};
  outstanding_ -= static_cast<std::int64_t>(memory_.gradients.tensor(index).size_bytes());
  memory_.gradients.drop(index);
  return {};
}

// What has arrived, and where too much is on its way, what can arrive.
Status ShardedHook::take_arrived() {
  const std::int64_t most = kOutstanding * options_.parallel.aggregator.bucket_bytes;
  while (!to_take_.empty()) {
    GW_ASSIGN(const bool there, reduce_->arrived(to_take_.front(), outstanding_ > most));
    if (!there) return {};
    GW_TRY(take(to_take_.front()));
    to_take_.pop_front();
  }
  return {};
}

Status ShardedHook::before_optimizer_step(const Stream& stream) {
  GW_TRY(reduce_->finish(stream));
  if (options_.stage < 2) {
    for (int index = 0; index < layout_.tensors(); ++index) GW_TRY(take(index));
  }
  for (; !to_take_.empty(); to_take_.pop_front()) GW_TRY(take(to_take_.front()));
  return replicas_.count_step();
}

// A few numbers, which all ranks must have alike.
Status ShardedHook::sum_over_ranks(std::span<double> sums) {
  GW_ASSIGN(Work work, replicas_.communicator().all_reduce(
                           view_of(sums), ReduceOp::kSum,
                           {.algorithm = "canonical", .deadline = std::nullopt, .stream = {}}));
  return work.wait();
}

Result<double> ShardedHook::clip_gradients(std::span<float>, double most) {
  if (there_ != nullptr) return clip_there(most);
  const double own = norm(shard_gradients());
  double squares = own * own;
  GW_TRY(sum_over_ranks(std::span(&squares, 1)));
  const double all = std::sqrt(squares);
  clip_to(shard_gradients(), all, most);
  return all;
}

Result<double> ShardedHook::clip_there(double most) {
  const std::span<double> square = square_.there<double>();
  GW_TRY(there_->sum_of_squares(shard_gradients(), square));
  GW_ASSIGN(const std::span<const double> own, square_.read<double>());
  double squares = own[0];
  GW_TRY(sum_over_ranks(std::span(&squares, 1)));
  GW_TRY(square_.write(std::span<const double>(&squares, 1)));
  GW_TRY(there_->clip(square, most, shard_gradients()));
  return std::sqrt(squares);
}

// The own part of a tensor goes where it travels from.
Status ShardedHook::to_whole(int index) {
  const std::span<const float> own = layout_.in_shard(shard(), index);
  if (offloaded_) memory_.places.link->bytes_in += static_cast<std::int64_t>(own.size_bytes());
  return copy_between(own, shard_arena(), layout_.in_whole(memory_.parameters.all(), index),
                      device());
}

Status ShardedHook::step_shard(double lr) {
  if (!offloaded_) return inner_->step(shard(), shard_gradients(), lr);
  return offloaded_->run(*inner_, shard(), ChunkedStep::from(shard_gradients(), device()), lr,
                         [](std::size_t, std::span<const float>) { return Status(); });
}

Status ShardedHook::step(std::span<float>, std::span<const float>, double lr) {
  GW_TRY(step_shard(lr));
  steps_ = inner_->steps();
  if (gathers_layers()) return {};
  for (int index = layout_.tensors(); index-- > 0;) {
    GW_TRY(to_whole(index));
    GW_TRY(gather_->ready(index, device().stream()));
  }
  return gather_->finish(device().stream());
}

}  // namespace gradwire
