#include "aggregate/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "aggregate/narrow/wide_buffers.h"
#include "aggregate/plan/node_groups.h"
#include "aggregate/state/replica_check.h"
#include "base/elements.h"
#include "base/text.h"
#include "device/patience.h"
#include "device/rank_device.h"

namespace gradwire {
namespace {

// After so many steps exchanges have all the memory that they will ever have.
constexpr std::int64_t kStepsToGrow = 2;

AggregateStats bytes_of_one_step(const ExchangeContext& context,
                                 std::span<const Parameter> parameters) {
  AggregateStats bytes;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    std::int64_t elems = 0;
    for (const Parameter& parameter : parameters) {
      if (parameter.grad.dtype() == dtype) elems += parameter.grad.elems();
    }
    const auto sent = ring_elems_sent(elems, context.communicator.rank(),
                                      context.communicator.size(), context.form);
    bytes.gradient_bytes += static_cast<std::uint64_t>(elems) * size_of(dtype);
    bytes.dense_ring_bytes += static_cast<std::uint64_t>(sent) * size_of(dtype);
  }
  return bytes;
}

}  // namespace

Engine::Engine(const ExchangeContext& context, const AggregatorOptions& options,
               std::vector<Bucket> buckets, std::span<const Parameter> parameters,
               std::uint64_t fingerprint)
    : context_(context),
      communicator_(context.communicator),
      nodes_(context.nodes),
      options_(options),
      buckets_(std::move(buckets)),
      parameters_(parameters),
      fingerprint_(fingerprint),
      bucket_of_(parameters.size()),
      per_step_(bytes_of_one_step(context, parameters)),
      predicted_(predict_bytes(parameters, context.communicator.rank(), context.communicator.size(),
                               context.form, context.nodes)),
      handed_over_(parameters.size(), false),
      missing_total_(static_cast<int>(parameters.size())),
      landed_(buckets_.size(), false) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const int index : buckets_[b].plan.parameters) {
      bucket_of_[static_cast<std::size_t>(index)] = static_cast<int>(b);
    }
    missing_.push_back(static_cast<int>(buckets_[b].plan.parameters.size()));
  }
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (!context_.await_lane().ok()) give_up_memory();
}

Status Engine::check_index(int index) const {
  if (index >= 0 && static_cast<std::size_t>(index) < parameters_.size()) return {};
  return {Code::kInvalidArgument,
          format("aggregator: gradient %d is ready (expected an index from 0 to %zu)", index,
                 parameters_.size() - 1)};
}

Status Engine::check_open(int index) const {
  const std::lock_guard lock(mutex_);
  if (!status_.ok()) return status_;
  GW_TRY(check_index(index));
  const auto i = static_cast<std::size_t>(index);
  if (!handed_over_[i]) return {};
  return {Code::kInvalidArgument,
          "aggregator: gradient '" + parameters_[i].name + "' was ready in this step already"};
}

Status Engine::ready(int index) {
  bool bucket_complete = false;
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) return status_;
    GW_TRY(check_index(index));
    const auto i = static_cast<std::size_t>(index);
    if (handed_over_[i]) {
      return {Code::kInvalidArgument, "aggregator: gradient '" + parameters_[i].name +
                                          "' is ready a second time in one step; call finish() "
                                          "between steps"};
    }
    handed_over_[i] = true;
    --missing_total_;
    bucket_complete = --missing_[static_cast<std::size_t>(bucket_of_[i])] == 0;
  }
  if (bucket_complete) changed_.notify_all();
  return {};
}

Status Engine::missing_gradients() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (handed_over_[i]) continue;
    return {Code::kInvalidArgument,
            format("aggregator: finish() while %d of %zu gradients are not ready, '%s' among them; "
                   "call ready() for each first",
                   missing_total_, parameters_.size(), parameters_[i].name.c_str())};
  }
  return {};
}

Status Engine::finish() {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  if (!status_.ok()) return status_;
  if (missing_total_ > 0) return missing_gradients();
  // Bounded by the deadlines of the exchanges, after which there is a status.
  changed_.wait(lock, [this] { return step_done_ || !status_.ok(); });
  stats_.exposed_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!status_.ok()) return status_;
  step_done_ = false;
  missing_total_ = static_cast<int>(parameters_.size());
  handed_over_.assign(parameters_.size(), false);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    missing_[b] = static_cast<int>(buckets_[b].plan.parameters.size());
  }
  landed_.assign(buckets_.size(), false);
  changed_.notify_all();
  return {};
}

// Between the phases of a bucket the first one of the next bucket is issued (launch_order).
bool Engine::will_land(std::size_t bucket) const {
  const Exchanges& own = buckets_[bucket].exchanges;
  const bool alone = own.size() == 1 && own.front()->phases() == 1;
  const std::size_t last = alone ? bucket : std::min(bucket + 1, buckets_.size() - 1);
  return missing_[bucket] == 0 && missing_[last] == 0;
}

Result<bool> Engine::arrived(int index, bool wait) {
  std::unique_lock lock(mutex_);
  if (!status_.ok()) return status_;
  GW_TRY(check_index(index));
  const auto i = static_cast<std::size_t>(index);
  if (!handed_over_[i]) {
    return Status(Code::kInvalidArgument, "aggregator: arrived() of gradient '" +
                                              parameters_[i].name + "' before its ready()");
  }
  const auto bucket = static_cast<std::size_t>(bucket_of_[i]);
  // Bounded by the deadlines of the exchanges, after which there is a status.
  if (wait && will_land(bucket)) {
    const auto start = std::chrono::steady_clock::now();
    changed_.wait(lock, [&] { return landed_[bucket] || !status_.ok(); });
    stats_.exposed_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (!status_.ok()) return status_;
  return static_cast<bool>(landed_[bucket]);
}

void Engine::landed(int exchange) {
  const std::size_t bucket = bucket_at_[static_cast<std::size_t>(exchange)];
  if (--flying_[bucket] > 0) return;
  {
    const std::lock_guard lock(mutex_);
    landed_[bucket] = true;
  }
  changed_.notify_all();
  if (!options_.arrival) return;
  for (const int index : buckets_[bucket].plan.parameters) {
    options_.arrival(index, Status());
  }
}

void Engine::told(const AggregateSpan& span) {
  if (!options_.on_span) return;
  AggregateSpan own = span;
  own.traffic = options_.traffic;
  options_.on_span(own);
}

AggregateStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::vector<std::string> Engine::notices() const {
  const std::lock_guard lock(mutex_);
  return notices_;
}

// On two levels what stays inside nodes does not count. Whatever messages add is told apart from
// payloads by what was predicted, and so is what the pieces of small tensors make of one rank's
// share.
void Engine::compare_with_dense(bool warming) {
  const bool levels = nodes_ != nullptr;
  const std::uint64_t so_far =
      communicator_.bytes_sent() + (levels ? nodes_->bytes_sent_between() : 0);
  const std::uint64_t sent = so_far - std::exchange(compared_, so_far);
  const std::uint64_t dense = levels ? predicted_.dense : per_step_.dense_ring_bytes;
  if (warming || !notices_.empty()) return;
  if (sent <= dense || predicted_.most <= std::max(dense, predicted_.dense)) return;
  notices_.push_back(more_than_dense(options_.compressor, predicted_, sent, dense, levels));
}

bool Engine::between_steps() const {
  const std::lock_guard lock(mutex_);
  return step_done_ || missing_total_ == static_cast<int>(parameters_.size());
}

// Where it lies.
std::vector<NamedTensor> Engine::live_state() {
  std::vector<NamedTensor> all;
  all.push_back({"aggregator.step",
                 TensorView(reinterpret_cast<std::byte*>(&step_), Shape::vector(1), DType::kI64)});
  all.push_back({"aggregator.scales", view_of(std::span<double>(scales_))});
  for (Bucket& bucket : buckets_) {
    for (const auto& exchange : bucket.exchanges) {
      for (NamedTensor& entry : exchange->state()) all.push_back(std::move(entry));
    }
  }
  return all;
}

Status Engine::follow(ScaleKind kind, double value) {
  double& last = scales_[static_cast<std::size_t>(kind)];
  if (value == 0) return {};
  // Residuals stand for updates of the last rate; gradients come in units of the new loss scale.
  const double factor = kind == ScaleKind::kLearningRate ? last / value : value / last;
  if (last != 0 && factor != 1) {
    GW_TRY(change(concerned(live_state(), parameters_, kind),
                  [&](auto state) { return rescale_state(state, parameters_, kind, factor); }));
  }
  last = value;
  return {};
}

Result<float> Engine::largest(float value) {
  GW_ASSIGN(Work work,
            communicator_.all_reduce(view_of(std::span<float>(&value, 1)), ReduceOp::kMax));
  GW_TRY(work.wait());
  return value;
}

bool Engine::is_ready(int exchange) {
  const std::size_t bucket = bucket_at_[static_cast<std::size_t>(exchange)];
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return true;
    if (missing_[bucket] > 0) return false;
  }
  return final_on_device(bucket);
}

Status Engine::wait_ready(int exchange) {
  const std::size_t bucket = bucket_at_[static_cast<std::size_t>(exchange)];
  {
    std::unique_lock lock(mutex_);
    // No deadline: how long backward takes is the caller's business, and its end is the engine's.
    changed_.wait(lock,
                  [this, bucket] { return stopping_ || (!step_done_ && missing_[bucket] == 0); });
    if (stopping_) return cancelled();
  }
  return await_device(bucket);
}

Status Engine::wait(Work& work) {
  while (true) {
    const Status status = work.wait(deadline_in(kPatience));
    if (work.done()) return status.code() == Code::kTimedOut ? work.wait() : status;
    const std::lock_guard lock(mutex_);
    if (stopping_) return cancelled();
  }
}

Status Engine::check_agreement() {
  const NamedHash hash{"parameters and options", fingerprint_};
  return check_equal(communicator_, std::span(&hash, 1), "aggregator: first step");
}

// After a step: packing memory, and what is kept.
std::uint64_t Engine::held_bytes() {
  std::uint64_t bytes = context_.wide->bytes();
  for (const Bucket& bucket : buckets_) {
    for (const auto& warmup : bucket.warmup) bytes += warmup->held_bytes();
    for (const auto& exchange : bucket.exchanges) {
      bytes += exchange->held_bytes();
      for (const NamedTensor& entry : exchange->state()) bytes += entry.tensor.bytes().size();
    }
  }
  return bytes;
}

Status Engine::run_one_step() {
  if (!agreed_) GW_TRY(check_agreement());
  agreed_ = true;
  std::vector<BucketExchange*> exchanges;
  bucket_at_.clear();
  flying_.clear();
  bool any_warms = false;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const bool warming = step_ < buckets_[b].plan.warmup_steps;
    any_warms = any_warms || warming;
    const Exchanges& own = warming ? buckets_[b].warmup : buckets_[b].exchanges;
    for (const auto& exchange : own) {
      exchanges.push_back(exchange.get());
      bucket_at_.push_back(b);
    }
    flying_.push_back(own.size());
  }
  StepCost cost;
  GW_TRY(run_step(exchanges, static_cast<std::uint64_t>(step_), *this, cost));
  const std::uint64_t held = step_ <= kStepsToGrow ? held_bytes() : stats().held_bytes;
  const std::lock_guard lock(mutex_);
  stats_.held_bytes = held;
  ++step_;
  stats_.gradient_bytes += per_step_.gradient_bytes;
  stats_.dense_ring_bytes += per_step_.dense_ring_bytes;
  stats_.payload_bytes += cost.payload_bytes;
  stats_.wire_bytes = communicator_.bytes_sent() + (nodes_ == nullptr ? 0 : nodes_->bytes_sent());
  compare_with_dense(any_warms);
  stats_.encode_seconds += cost.encode_seconds;
  stats_.exchange_seconds += cost.exchange_seconds;
  stats_.decode_seconds += cost.decode_seconds;
  step_done_ = true;
  return {};
}

// Peers must not wait for an exchange that will never be issued here: they are told why.
void Engine::fail(const Status& status) {
  if (communicator_.status().ok()) communicator_.abort(status.message());
  const Status left = leave_device(status);
  {
    const std::lock_guard lock(mutex_);
    status_ = left.with_context(format("aggregator, rank %d", communicator_.rank()));
  }
  changed_.notify_all();
  if (options_.arrival) options_.arrival(-1, status_);
}

// Not before a whole bucket is there: exchanges have deadlines, backward has none.
bool Engine::wait_for_step() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || (!step_done_ && missing_[0] == 0); });
  return !stopping_;
}

void Engine::run() {
  const DevicePatience patience(context_.lane == nullptr ? DevicePatience::kAmple
                                                         : context_.lane_seconds);
  const ThreadOnDevice there(context_.lane == nullptr ? Device{}
                                                      : context_.lane->to_device().device);
  while (wait_for_step()) {
    const Status status = run_one_step();
    if (!status.ok()) return fail(status);
    changed_.notify_all();
  }
  // Peers that were given gradients of this step wait for this rank.
  if (!between_steps()) fail(cancelled());
}

}  // namespace gradwire
