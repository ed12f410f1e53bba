#include "adapters/trainer/measured_gradients.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>

#include "adapters/trainer/entry_owner.h"
#include "base/check.h"
#include "base/elements.h"
#include "base/small_floats.h"
#include "device/host_copy.h"
#include "device/ops.h"
#include "trainer/precision.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

std::span<float> floats_of(const Buffer& buffer) {
  const ByteSpan bytes = buffer.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// The parameter of an entry of an aggregator's state that error feedback keeps for later; "" for
// other entries.
std::string_view residual_owner(std::string_view name) {
  for (const std::string_view what : {".error", ".error2", ".shard_error", ".coder.residual"}) {
    if (name.ends_with(what)) return name.substr(0, name.size() - what.size());
  }
  return {};
}

template <typename T>
double squares(std::span<const T> values) {
  double sum = 0;
  for (const T value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

// NaN for a type that is not read here.
double squares_of(const ConstTensorView& view) {
  if (view.dtype() == DType::kF32) return squares(elements<float>(view));
  if (view.dtype() == DType::kF64) return squares(elements<double>(view));
  if (view.dtype() != DType::kBF16) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  const auto* halves = reinterpret_cast<const std::uint16_t*>(view.data());
  for (std::int64_t i = 0; i < view.elems(); ++i) {
    const double value = float_from_bf16(halves[i]);
    sum += value * value;
  }
  return sum;
}

// What error feedback keeps on this rank.
struct Residual {
  double tensors = 0;
  double squares = 0;
};
Residual residual_of(Aggregator& aggregator, const std::set<std::string>& parameters) {
  Residual all;
  for (const NamedTensor& entry : aggregator.state()) {
    if (!parameters.contains(std::string(residual_owner(entry.name)))) continue;
    ++all.tensors;
    all.squares += squares_of(entry.tensor);
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<MeasuredGradients>> MeasuredGradients::create(
    DistributedStrategy& strategy, Communicator& communicator, std::int64_t every,
    std::span<const NamedTensor> gradients, const MeasuringOptions& options) {
  GW_CHECK(every >= 1);
  if (strategy.gradient_averages() == nullptr) {
    return Status(Code::kUnsupported, "no averages of gradients to measure");
  }
  if (strategy.demands().each_micro_batch) {
    return Status(Code::kUnsupported,
                  "averages of single micro-batches (reduce-each) are not measured");
  }
  std::unique_ptr<MeasuredGradients> made(new MeasuredGradients(strategy, communicator, every));
  std::int64_t elems = 0;
  bool there = false;
  bool narrow = false;
  const EntryOwner owner(options.share, {});
  for (const NamedTensor& gradient : gradients) {
    made->counts_.push_back(owner.writes(gradient.name));
    if (made->counts_.back()) made->kept_.insert(gradient.name);
    made->offsets_.push_back(elems);
    made->gradients_.push_back(gradient.tensor);
    elems += gradient.tensor.elems();
    there = there || gradient.tensor.device().space == MemorySpace::kCuda;
    narrow = narrow || gradient.tensor.dtype() != DType::kF32;
  }
  const std::size_t bytes = static_cast<std::size_t>(elems) * sizeof(float);
  if (!there) {
    GW_ASSIGN(made->exact_, options.memory.allocate(MemoryClass::kOther, bytes));
    if (narrow) {
      GW_ASSIGN(made->averages_, options.memory.allocate(MemoryClass::kOther, bytes));
    }
    return made;
  }
  constexpr Device kPinned{MemorySpace::kPinnedHost, 0};
  GW_ASSIGN(made->exact_, Buffer::allocate(bytes, kPinned));
  GW_ASSIGN(made->averages_, Buffer::allocate(bytes, kPinned));
  return made;
}

std::span<float> MeasuredGradients::part(const Buffer& all, std::size_t index) const {
  const auto values = floats_of(all);
  return values.subspan(static_cast<std::size_t>(offsets_[index]),
                        static_cast<std::size_t>(gradients_[index].elems()));
}

Status MeasuredGradients::copy_to(std::span<float> to, ConstTensorView from,
                                  const Stream& stream) const {
  if (from.dtype() == DType::kF32) {
    return copy_bytes(from.bytes(), from.device(), std::as_writable_bytes(to), exact_.device(),
                      stream);
  }
  const TensorView wide = view_of(to);
  if (from.device().space == MemorySpace::kCuda) {
    GW_ASSIGN(const HostCopy here, HostCopy::of(from, stream));
    load(precision_of(from.dtype()),
         {reinterpret_cast<const std::uint16_t*>(here.bytes().data()), to.size()}, to);
    return scale_ == 1 ? Status() : scale(wide, 1 / scale_, {});
  }
  GW_TRY(cast(from.slice(0, from.elems()), wide, {}));
  return scale_ == 1 ? Status() : scale(wide, 1 / scale_, {});
}

Demands MeasuredGradients::demands_of(Demands strategy) {
  strategy.tells_arrival = false;
  return strategy;
}

Status MeasuredGradients::set_gradient_scale(double scale) {
  scale_ = scale;
  return strategy_.exchange().set_gradient_scale(scale);
}

Status MeasuredGradients::before_step(double learning_rate) {
  counted_ = false;
  return strategy_.exchange().before_step(learning_rate);
}

void MeasuredGradients::skip_step() {
  errors_.reset();
  if (!counted_) ++step_;  // it ends here
  counted_ = false;
  strategy_.exchange().skip_step();
}

Status MeasuredGradients::on_gradient(int index, TensorView grad, const Stream& stream) {
  if (measures()) {
    const auto start = Clock::now();
    GW_TRY(copy_to(part(exact_, static_cast<std::size_t>(index)), grad, stream));
    seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  }
  return strategy_.exchange().on_gradient(index, grad, stream);
}

Status MeasuredGradients::finish(const Stream& stream) {
  GW_TRY(strategy_.exchange().finish(stream));
  errors_.reset();
  if (measures()) GW_TRY(measure(stream));
  ++step_;
  counted_ = true;
  return {};
}

Status MeasuredGradients::fetch_averages(const Stream& stream) {
  for (std::size_t t = 0; t < gradients_.size(); ++t) {
    const auto own = strategy_.average_part(static_cast<int>(t));
    if (!own) {
      GW_TRY(copy_to(part(*averages_, t), gradients_[t], stream));
      continue;
    }
    const auto to = part(*averages_, t)
                        .subspan(static_cast<std::size_t>(own->begin),
                                 static_cast<std::size_t>(own->values.elems()));
    GW_TRY(copy_to(to, own->values, stream));
  }
  return wait_for(stream);
}

MeasuredGradients::Average MeasuredGradients::average(std::size_t index) const {
  const auto own = strategy_.average_part(static_cast<int>(index));
  const std::int64_t begin = own ? own->begin : 0;
  const std::int64_t elems = own ? own->values.elems() : gradients_[index].elems();
  if (averages_) {
    return {begin, part(*averages_, index)
                       .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(elems))};
  }
  return {begin, elements<float>(own ? own->values : ConstTensorView(gradients_[index]))};
}

// |average - exact average|^2: where ranks have parts of the average the sum over all of them.
Result<double> MeasuredGradients::squared_difference() {
  double difference = 0;
  for (std::size_t t = 0; t < gradients_.size(); ++t) {
    if (!counts_[t]) continue;
    const Average averaged = average(t);
    const auto exact = part(exact_, t).subspan(static_cast<std::size_t>(averaged.begin));
    for (std::size_t i = 0; i < averaged.values.size(); ++i) {
      const double off = static_cast<double>(averaged.values[i]) - static_cast<double>(exact[i]);
      difference += off * off;
    }
  }
  if (!strategy_.average_part(0)) return difference;
  GW_TRY(strategy_.consensus().sum({&difference, 1}, Scope::kData));
  return difference;
}

double MeasuredGradients::exact_squares() const {
  double sum = 0;
  for (std::size_t t = 0; t < gradients_.size(); ++t) {
    if (!counts_[t]) continue;
    for (const float value : part(exact_, t)) sum += static_cast<double>(value) * double{value};
  }
  return sum;
}

Status MeasuredGradients::measure(const Stream& stream) {
  const auto start = Clock::now();
  if (averages_) GW_TRY(fetch_averages(stream));
  GW_TRY(strategy_.consensus().finish_sums());  // else its bytes would count as the measurement's
  const std::uint64_t sent = communicator_.transport_stats().bytes_sent;
  GW_ASSIGN(Work work, communicator_.all_reduce(
                           view_of(floats_of(exact_)), ReduceOp::kMean,
                           {.algorithm = "ring", .deadline = std::nullopt, .stream = {}}));
  GW_TRY(work.wait());
  GW_ASSIGN(const double difference, squared_difference());
  const Residual residual = residual_of(*strategy_.gradient_averages(), kept_);
  std::array<double, 2> kept{residual.squares, residual.tensors};
  GW_TRY(strategy_.consensus().mean(kept, Scope::kData));
  // Other ranks have the rest of the model, where it is in parts.
  std::array<double, 4> sums{difference, exact_squares(), kept[0], kept[1]};
  if (strategy_.consensus().ranks(Scope::kModel) > 1) {
    GW_TRY(strategy_.consensus().sum(sums, Scope::kModel));
  }
  errors_ = GradientErrors{
      .nmse = sums[0] / sums[1], .exact_norm = std::sqrt(sums[1]), .residual_norm = std::nullopt};
  if (sums[3] > 0 && std::isfinite(sums[2])) errors_->residual_norm = std::sqrt(sums[2]);
  bytes_ += communicator_.transport_stats().bytes_sent - sent;
  seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return {};
}

}  // namespace gradwire
