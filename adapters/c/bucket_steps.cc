#include "adapters/c/bucket_steps.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/elements.h"
#include "base/forks.h"
#include "base/text.h"

namespace gradwire::c {
namespace {

template <typename T>
bool all_finite(std::span<const T> values) {
  bool finite = true;
  for (const T value : values) finite &= std::abs(value) <= std::numeric_limits<T>::max();
  return finite;
}

// Infinities and NaNs have all bits of the exponent, and they alone.
bool all_below(std::uint16_t exponent, const TensorView& tensor) {
  const auto* values = reinterpret_cast<const std::uint16_t*>(tensor.data());
  bool finite = true;
  for (std::int64_t i = 0; i < tensor.elems(); ++i) finite &= (values[i] & exponent) != exponent;
  return finite;
}

bool is_finite(const TensorView& tensor) {
  switch (tensor.dtype()) {
    case DType::kF64: return all_finite(std::span<const double>(elements<double>(tensor)));
    case DType::kF16: return all_below(0x7c00, tensor);
    case DType::kBF16: return all_below(0x7f80, tensor);
    default: return all_finite(std::span<const float>(elements<float>(tensor)));
  }
}

// All bits set is a quiet NaN of every floating type.
void fill_with_nan(const TensorView& tensor) { std::ranges::fill(tensor.bytes(), std::byte{0xff}); }

}  // namespace

void BucketSteps::Bucket::end(const Status& status) {
  if (!ended.exchange(true)) cell->end(status, -1);
}

Result<std::shared_ptr<BucketSteps>> BucketSteps::create(std::shared_ptr<Group> group,
                                                         const std::vector<Tensor>& tensors,
                                                         AggregatorOptions options, bool skips) {
  // In a child of fork() it is left alone: the threads are not there that others wait for.
  std::shared_ptr<BucketSteps> steps(new BucketSteps(group, skips),
                                     [mark = ForkMark()](BucketSteps* it) {
                                       if (!mark.in_child()) delete it;
                                     });
  options.arrival = [raw = steps.get()](int index, const Status& outcome) {
    raw->arrived(index, outcome);
  };
  {
    const std::lock_guard lock(group->order);
    GW_ASSIGN(steps->aggregator_,
              Aggregator::create(*group->communicator, Registry::builtin(), std::move(options)));
  }
  steps->slots_.reserve(tensors.size());
  for (const Tensor& tensor : tensors) GW_TRY(steps->add(tensor));
  if (skips) steps->decider_ = std::thread([raw = steps.get()] { raw->decide(); });
  return steps;
}

BucketSteps::~BucketSteps() {
  if (decider_.joinable()) {
    bool deciding = false;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      deciding = deciding_;
    }
    decided_.notify_all();
    // It may wait for the other ranks' word.
    if (deciding) group_->communicator->abort("an aggregator was freed within a step");
    decider_.join();
  }
  aggregator_.reset();  // tells of what has not arrived
}

Status BucketSteps::add(const Tensor& tensor) {
  slots_.push_back({.tensor = tensor});
  return aggregator_->add(tensor.name, TensorView(&nowhere_, tensor.shape, tensor.dtype));
}

Status BucketSteps::check(std::span<const gw_gradient> gradients) const {
  std::vector<bool> named(slots_.size(), false);
  for (const gw_gradient& gradient : gradients) {
    const auto i = static_cast<std::size_t>(gradient.index);
    if (gradient.index < 0 || i >= slots_.size()) {
      return {Code::kInvalidArgument, format("gw_aggregator_submit: index %d (expected 0 to %zu)",
                                             gradient.index, slots_.size() - 1)};
    }
    if (named[i] || slots_[i].submitted) {
      return {Code::kInvalidArgument, "gw_aggregator_submit: '" + slots_[i].tensor.name +
                                          "' a second time in one step (expected once)"};
    }
    if (gradient.data == nullptr && slots_[i].tensor.shape.elems() > 0) {
      return {Code::kInvalidArgument,
              "gw_aggregator_submit: '" + slots_[i].tensor.name + "' at NULL"};
    }
    named[i] = true;
  }
  return {};
}

Result<std::shared_ptr<WorkCell>> BucketSteps::submit(std::span<const gw_gradient> gradients) {
  std::unique_lock lock(mutex_);
  decided_.wait(lock, [this] { return !deciding_; });
  if (submitted_ == slots_.size()) GW_TRY(end_step());
  GW_TRY(check(gradients));
  const auto bucket = std::make_shared<Bucket>();
  bucket->left = gradients.size();
  if (gradients.empty()) bucket->end({});
  {
    const std::lock_guard arrivals(arrivals_);
    if (!failure_.ok()) return failure_;
    for (const gw_gradient& gradient : gradients) {
      Slot& slot = slots_[static_cast<std::size_t>(gradient.index)];
      slot.given =
          TensorView(static_cast<std::byte*>(gradient.data), slot.tensor.shape, slot.tensor.dtype);
      slot.submitted = true;
      slot.bucket = bucket;
    }
  }
  submitted_ += gradients.size();
  for (const gw_gradient& gradient : gradients) {
    const Status taken =
        hand_over(slots_[static_cast<std::size_t>(gradient.index)], gradient.index);
    if (taken.ok()) continue;
    bucket->end(taken);
    return taken;
  }
  if (skips_ && submitted_ == slots_.size() && !gradients.empty()) {
    deciding_ = true;
    decided_.notify_all();
  }
  return bucket->cell;
}

// Where steps may be skipped it is but looked at.
Status BucketSteps::hand_over(Slot& slot, int index) {
  if (!slot.given.empty()) GW_TRY(aggregator_->move(index, slot.given));
  if (!skips_) return aggregator_->ready(index);
  if (!slot.given.empty() && !is_finite(slot.given)) nonfinite_ = true;
  return {};
}

Status BucketSteps::end_step() {
  if (submitted_ == 0) return {};
  GW_TRY(aggregator_->finish());
  for (Slot& slot : slots_) slot.submitted = false;
  submitted_ = 0;
  ++steps_;
  return {};
}

Status BucketSteps::flush() {
  std::unique_lock lock(mutex_);
  decided_.wait(lock, [this] { return !deciding_; });
  return end_step();
}

Status BucketSteps::between_steps(const std::function<Status(Aggregator&)>& action) {
  std::unique_lock lock(mutex_);
  decided_.wait(lock, [this] { return !deciding_; });
  if (submitted_ == slots_.size()) GW_TRY(end_step());
  if (submitted_ == 0) return action(*aggregator_);
  return {Code::kInvalidArgument,
          format("in the middle of a step (%zu of %zu tensors are submitted; expected all or none)",
                 submitted_, slots_.size())};
}

gw_aggregator_stats BucketSteps::stats() const {
  const std::lock_guard lock(mutex_);
  const AggregateStats seen = aggregator_->stats();
  return {sizeof(gw_aggregator_stats),
          steps_,
          skipped_,
          seen.gradient_bytes,
          seen.dense_ring_bytes,
          seen.payload_bytes,
          seen.wire_bytes,
          seen.encode_seconds,
          seen.exchange_seconds,
          seen.decode_seconds,
          seen.exposed_seconds};
}

// What creation says does not change, and steps add to it.
const char* BucketSteps::warning(std::size_t i) {
  const std::lock_guard lock(mutex_);
  if (i >= warnings_.size() && !deciding_) {
    const std::vector<std::string> all = aggregator_->warnings();
    for (std::size_t next = warnings_.size(); next < all.size(); ++next) {
      warnings_.push_back(all[next]);
    }
  }
  return i < warnings_.size() ? warnings_[i].c_str() : nullptr;
}

// On the aggregator's thread, or on one that ends it.
void BucketSteps::arrived(int index, const Status& outcome) {
  if (index < 0) {
    std::vector<std::shared_ptr<Bucket>> open;
    {
      const std::lock_guard lock(arrivals_);
      if (failure_.ok()) failure_ = outcome;
      for (Slot& slot : slots_) {
        if (slot.bucket != nullptr) open.push_back(std::move(slot.bucket));
      }
    }
    for (const auto& bucket : open) bucket->end(outcome);
    return;
  }
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  std::shared_ptr<Bucket> bucket;
  {
    const std::lock_guard lock(arrivals_);
    bucket = std::move(slot.bucket);
  }
  if (bucket == nullptr) return;
  if (bucket->left.fetch_sub(1) == 1) bucket->end({});
}

// The thread that asks the other ranks whether a step is to be skipped, so that no caller waits.
void BucketSteps::decide() {
  while (true) {
    std::unique_lock lock(mutex_);
    decided_.wait(lock, [this] { return deciding_ || stopping_; });
    if (stopping_) return;
    lock.unlock();
    decide_once();
    lock.lock();
    deciding_ = false;
    decided_.notify_all();
  }
}

// While deciding_ is set the callers leave all to this thread.
void BucketSteps::decide_once() {
  const Result<bool> skip = aggregator_->skip_step(std::exchange(nonfinite_, false));
  if (skip.has_value() && skip.value()) return leave_out();
  Status status = skip.error();
  for (std::size_t i = 0; i < slots_.size() && status.ok(); ++i) {
    status = aggregator_->ready(static_cast<int>(i));
  }
  if (!status.ok()) arrived(-1, status);
}

void BucketSteps::leave_out() {
  std::vector<std::shared_ptr<Bucket>> all;
  for (Slot& slot : slots_) {
    fill_with_nan(slot.given);
    slot.submitted = false;
    const std::lock_guard lock(arrivals_);
    if (slot.bucket != nullptr) all.push_back(std::move(slot.bucket));
  }
  {
    const std::lock_guard lock(mutex_);
    submitted_ = 0;
    ++skipped_;
  }
  for (const auto& bucket : all) bucket->end({});
}

}  // namespace gradwire::c
