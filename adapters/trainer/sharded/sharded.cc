#include "adapters/trainer/sharded/sharded.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "device/pages.h"
#include "trainer/clipping.h"

namespace gradwire {
namespace {

// All tensors of a model as one.
std::span<float> whole(const std::vector<NamedTensor>& tensors) {
  if (tensors.empty()) return {};
  std::size_t elems = 0;
  for (const NamedTensor& named : tensors) elems += static_cast<std::size_t>(named.tensor.elems());
  return {reinterpret_cast<float*>(tensors.front().tensor.data()), elems};
}

Status check_lists(const ParameterTable& table, const std::vector<NamedTensor>& tensors,
                   const char* what) {
  bool fits = tensors.size() == table.size();
  for (std::size_t i = 0; fits && i < table.size(); ++i) {
    const auto* begin = reinterpret_cast<const float*>(tensors.front().tensor.data());
    fits = tensors[i].name == table[i].name && tensors[i].tensor.shape() == table[i].shape &&
           reinterpret_cast<const float*>(tensors[i].tensor.data()) == begin + table[i].offset;
  }
  if (fits) return {};
  return {Code::kInvalidArgument,
          std::string("sharded training: ") + what + " that are not those of the model's table"};
}

}  // namespace

Result<std::unique_ptr<ShardedHook>> ShardedHook::create(
    Communicator& communicator, const Registry& registry, const ShardedOptions& options,
    const ParameterTable& table, const std::vector<NamedTensor>& parameters,
    const std::vector<NamedTensor>& gradients) {
  if (options.stage != 1 && options.stage != 2) {
    return Status(Code::kInvalidArgument,
                  format("sharded training: stage %d (1 or 2 wanted)", options.stage));
  }
  GW_TRY(check_lists(table, parameters, "parameters"));
  GW_TRY(check_lists(table, gradients, "gradients"));
  std::unique_ptr<ShardedHook> hook(
      new ShardedHook(communicator, options, table, parameters, gradients));
  GW_TRY(hook->open(communicator, registry));
  return hook;
}

ShardedHook::ShardedHook(Communicator& communicator, const ShardedOptions& options,
                         const ParameterTable& table, const std::vector<NamedTensor>& parameters,
                         const std::vector<NamedTensor>& gradients)
    : options_(options),
      layout_(table, communicator.rank(), communicator.size()),
      replicas_(communicator, parameters, options.parallel.check_every),
      gradients_(gradients),
      whole_parameters_(whole(parameters)),
      whole_gradients_(whole(gradients)) {}

Status ShardedHook::open(Communicator& communicator, const Registry& registry) {
  AggregatorOptions reduce = options_.parallel.aggregator;
  reduce.form = AggregateForm::kReduceScatter;
  reduce.traffic = TrafficClass::kGradients;
  auto reducing = Aggregator::create(communicator, registry, reduce);
  if (!reducing.has_value()) return reducing.error().with_context("sharded gradients");
  reduce_ = std::move(reducing).value();
  AggregatorOptions gather = reduce;
  gather.form = AggregateForm::kAllGather;
  gather.traffic = TrafficClass::kParameters;
  gather.compressor = options_.parameters;
  auto gathering = Aggregator::create(communicator, registry, gather);
  if (!gathering.has_value()) return gathering.error().with_context("sharded parameters");
  gather_ = std::move(gathering).value();
  for (const NamedTensor& named : gradients_) GW_TRY(reduce_->add(named.name, named.tensor));
  for (const NamedTensor& named : replicas_.parameters()) {
    GW_TRY(gather_->add(named.name, named.tensor));
  }
  // Squares of norms: a few numbers, which all ranks must have alike.
  const auto over_shards = [this](std::span<double> sums) -> Status {
    GW_ASSIGN(Work work, replicas_.communicator().all_reduce(
                             view_of(sums), ReduceOp::kSum,
                             {.algorithm = "canonical", .deadline = std::nullopt, .stream = {}}));
    return work.wait();
  };
  GW_ASSIGN(inner_, make_optimizer(options_.optimizer, layout_.slices(), over_shards));
  const auto bytes = static_cast<std::size_t>(layout_.elems()) * sizeof(float);
  GW_ASSIGN(shard_, Buffer::allocate(bytes));
  GW_ASSIGN(shard_grads_, Buffer::allocate(bytes));
  return {};
}

std::span<float> ShardedHook::floats(Buffer& buffer) {
  const ByteSpan bytes = buffer.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

Status ShardedHook::start(ReplicaStart how) {
  GW_TRY(replicas_.start(how));
  if (loaded_) return {};
  for (int index = 0; index < layout_.tensors(); ++index) {
    std::ranges::copy(layout_.in_whole(whole_parameters_, index),
                      layout_.in_shard(shard(), index).begin());
  }
  return {};
}

AggregateStats ShardedHook::stats() const { return reduce_->stats() + gather_->stats(); }

std::vector<std::string> ShardedHook::warnings() const {
  std::vector<std::string> all = reduce_->warnings();
  for (std::string& warning : gather_->warnings()) all.push_back("parameters: " + warning);
  return all;
}

Status ShardedHook::before_step(double learning_rate) {
  return reduce_->set_learning_rate(learning_rate);
}

Result<bool> ShardedHook::skip_step(bool overflow) { return reduce_->skip_step(overflow); }

Status ShardedHook::on_gradient(int index, TensorView, const Stream& stream) {
  GW_TRY(reduce_->ready(index, stream));
  if (options_.stage < 2) return {};
  to_take_.push_back(index);
  outstanding_ += static_cast<std::int64_t>(layout_.tensor(whole_gradients_, index).size_bytes());
  return take_arrived();
}

// The own shard's mean, out of memory that is not needed any more.
Status ShardedHook::take(int index) {
  std::ranges::copy(layout_.in_whole(whole_gradients_, index),
                    layout_.in_shard(shard_gradients(), index).begin());
  if (options_.stage < 2) return {};
  const std::span<float> tensor = layout_.tensor(whole_gradients_, index);
  outstanding_ -= static_cast<std::int64_t>(tensor.size_bytes());
  (void)drop_pages(std::as_writable_bytes(tensor));
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

Result<double> ShardedHook::clip_gradients(std::span<float>, double most) {
  const double own = norm(shard_gradients());
  double squares = own * own;
  GW_ASSIGN(Work work, replicas_.communicator().all_reduce(
                           view_of(std::span(&squares, 1)), ReduceOp::kSum,
                           {.algorithm = "canonical", .deadline = std::nullopt, .stream = {}}));
  GW_TRY(work.wait());
  const double all = std::sqrt(squares);
  clip_to(shard_gradients(), all, most);
  return all;
}

Status ShardedHook::step(std::span<float> parameters, std::span<const float>, double lr) {
  GW_TRY(inner_->step(shard(), shard_gradients(), lr));
  steps_ = inner_->steps();
  for (int index = layout_.tensors(); index-- > 0;) {
    std::ranges::copy(layout_.in_shard(shard(), index),
                      layout_.in_whole(parameters, index).begin());
    GW_TRY(gather_->ready(index));
  }
  return gather_->finish();
}

}  // namespace gradwire
