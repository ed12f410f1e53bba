#include "adapters/c/bucket_steps.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "adapters/c/places.h"
#include "base/forks.h"
#include "base/text.h"
#include "device/host_copy.h"

namespace gradwire::c {
namespace {

template <typename T>
bool all_finite(std::span<const T> values) {
  bool finite = true;
  for (const T value : values) finite &= std::abs(value) <= std::numeric_limits<T>::max();
  return finite;
}

// Infinities and NaNs have all bits of the exponent, and they alone.
bool all_below(std::uint16_t exponent, std::span<const std::uint16_t> values) {
  bool finite = true;
  for (const std::uint16_t value : values) finite &= (value & exponent) != exponent;
  return finite;
}

template <typename T>
std::span<const T> as(ConstByteSpan bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

bool is_finite(DType dtype, ConstByteSpan bytes) {
  switch (dtype) {
    case DType::kF64: return all_finite(as<double>(bytes));
    case DType::kF16: return all_below(0x7c00, as<std::uint16_t>(bytes));
    case DType::kBF16: return all_below(0x7f80, as<std::uint16_t>(bytes));
    default: return all_finite(as<float>(bytes));
  }
}

// All bits set is a quiet NaN of every floating type.
Status fill_with_nan(const TensorView& tensor, const CopyLane* lane) {
  if (tensor.empty()) return {};
  if (lane == nullptr) {
    std::ranges::fill(tensor.bytes(), std::byte{0xff});
    return {};
  }
  const std::vector<std::byte> ones(tensor.bytes().size(), std::byte{0xff});
  return write_from_host(ones, tensor, lane->to_host());
}

}  // namespace

void BucketSteps::Bucket::end(const Status& status) {
  if (!ended.exchange(true)) cell->end(status, -1);
}

Result<std::shared_ptr<BucketSteps>> BucketSteps::create(std::shared_ptr<Group> group,
                                                         const std::vector<Tensor>& tensors,
                                                         AggregatorOptions options, bool skips,
                                                         Device device) {
  // In a child of fork() it is left alone: the threads are not there that others wait for.
  std::shared_ptr<BucketSteps> steps(new BucketSteps(group, skips, device),
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
  if (skips && device.space == MemorySpace::kCuda) {
    GW_ASSIGN(steps->lane_, CopyLane::create(device));
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
  Slot& slot = slots_.emplace_back();
  slot.tensor = tensor;
  if (lane_ != nullptr) {
    GW_ASSIGN(slot.final, lane_->make_point());
  }
  return aggregator_->add(tensor.name, TensorView(&nowhere_, tensor.shape, tensor.dtype, device_));
}

Status BucketSteps::check(const char* function, std::span<const gw_gradient> gradients,
                          const Stream& stream) const {
  const auto refuse = [function](const std::string& why) {
    return Status(Code::kInvalidArgument, std::string(function) + ": " + why);
  };
  if (stream.device != device_) {
    return refuse("a stream for " + text_of_memory(stream.device) + " (expected one for " +
                  text_of_memory(device_) + ", where the aggregator's tensors are)");
  }
  std::vector<bool> named(slots_.size(), false);
  for (const gw_gradient& gradient : gradients) {
    const auto i = static_cast<std::size_t>(gradient.index);
    if (gradient.index < 0 || i >= slots_.size()) {
      return refuse(format("index %d (expected 0 to %zu)", gradient.index, slots_.size() - 1));
    }
    const Tensor& tensor = slots_[i].tensor;
    if (named[i] || slots_[i].submitted) {
      return refuse("'" + tensor.name + "' a second time in one step (expected once)");
    }
    if (tensor.shape.elems() > 0) {
      if (gradient.data == nullptr) return refuse("'" + tensor.name + "' at NULL");
      GW_TRY(check_memory(function, ("'" + tensor.name + "'").c_str(), gradient.data, device_));
    }
    named[i] = true;
  }
  return {};
}

Result<std::shared_ptr<WorkCell>> BucketSteps::submit(const char* function,
                                                      std::span<const gw_gradient> gradients,
                                                      const Stream& stream) {
  std::unique_lock lock(mutex_);
  decided_.wait(lock, [this] { return !deciding_; });
  if (submitted_ == slots_.size()) GW_TRY(end_step());
  GW_TRY(check(function, gradients, stream));
  const auto bucket = std::make_shared<Bucket>();
  bucket->left = gradients.size();
  if (gradients.empty()) bucket->end({});
  {
    const std::lock_guard arrivals(arrivals_);
    if (!failure_.ok()) return failure_;
    for (const gw_gradient& gradient : gradients) {
      Slot& slot = slots_[static_cast<std::size_t>(gradient.index)];
      slot.given = TensorView(static_cast<std::byte*>(gradient.data), slot.tensor.shape,
                              slot.tensor.dtype, device_);
      slot.submitted = true;
      slot.bucket = bucket;
    }
  }
  submitted_ += gradients.size();
  for (const gw_gradient& gradient : gradients) {
    const Status taken =
        hand_over(slots_[static_cast<std::size_t>(gradient.index)], gradient.index, stream);
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

// Where steps may be skipped it is but looked at: on the host here, and what is on a device by the
// thread that decides, since it must be waited for.
Status BucketSteps::hand_over(Slot& slot, int index, const Stream& stream) {
  if (!slot.given.empty()) GW_TRY(aggregator_->move(index, slot.given));
  if (!skips_) return aggregator_->ready(index, stream);
  if (lane_ != nullptr) return slot.final->record(stream);
  if (!is_finite(slot.given.dtype(), slot.given.bytes())) nonfinite_ = true;
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

// Of what is on a device the host has copies made.
Result<bool> BucketSteps::all_finite_there() const {
  bool finite = true;
  for (const Slot& slot : slots_) {
    GW_TRY(slot.final->before(lane_->to_host()));
    if (!finite || slot.given.empty()) continue;
    GW_ASSIGN(const HostCopy copy, HostCopy::of(slot.given, lane_->to_host()));
    finite = is_finite(slot.given.dtype(), copy.bytes());
  }
  return finite;
}

// While deciding_ is set the callers leave all to this thread.
void BucketSteps::decide_once() {
  const auto decided = [this]() -> Status {
    bool nonfinite = std::exchange(nonfinite_, false);
    if (lane_ != nullptr) {
      GW_ASSIGN(const bool finite, all_finite_there());
      nonfinite = !finite;
    }
    GW_ASSIGN(const bool skip, aggregator_->skip_step(nonfinite));
    if (skip) return leave_out();
    const Stream behind = lane_ == nullptr ? Stream{} : lane_->to_host();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      GW_TRY(aggregator_->ready(static_cast<int>(i), behind));
    }
    return {};
  };
  const Status status = decided();
  if (status.ok()) return;
  group_->communicator->abort(status.message());  // the others wait for this rank's word
  arrived(-1, status);
}

Status BucketSteps::leave_out() {
  for (const Slot& slot : slots_) GW_TRY(fill_with_nan(slot.given, lane_.get()));
  std::vector<std::shared_ptr<Bucket>> all;
  for (Slot& slot : slots_) {
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
  return {};
}

}  // namespace gradwire::c
