#include "adapters/trainer/measured_gradients.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/check.h"
#include "base/elements.h"
#include "base/small_floats.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

// The entries of an aggregator's state that error feedback keeps for later.
bool is_residual(std::string_view name) {
  return name.ends_with(".error") || name.ends_with(".error2") || name.ends_with(".shard_error") ||
         name.ends_with(".coder.residual");
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

// Of this rank; NaN where nothing is kept.
double residual_squares(Aggregator& aggregator) {
  double sum = 0;
  bool kept = false;
  for (const NamedTensor& entry : aggregator.state()) {
    if (!is_residual(entry.name)) continue;
    kept = true;
    sum += squares_of(entry.tensor);
  }
  return kept ? sum : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

MeasuredGradients::MeasuredGradients(DataParallelHook& hook, Communicator& communicator,
                                     std::int64_t every, std::span<const NamedTensor> gradients)
    : hook_(hook), communicator_(communicator), every_(every) {
  GW_CHECK(every >= 1);
  std::int64_t elems = 0;
  for (const NamedTensor& gradient : gradients) {
    offsets_.push_back(elems);
    gradients_.push_back(gradient.tensor);
    elems += gradient.tensor.elems();
  }
  copy_.resize(static_cast<std::size_t>(elems));
}

Result<bool> MeasuredGradients::skip_step(bool overflow) {
  errors_.reset();  // a step that is left out ends here
  return hook_.skip_step(overflow);
}

Status MeasuredGradients::on_gradient(int index, TensorView grad, const Stream& stream) {
  if (grad.device().space == MemorySpace::kCuda) {
    return Status(Code::kUnsupported,
                  "measured averages of gradients on a device (on the host wanted)");
  }
  if (measures()) {
    const auto start = Clock::now();
    const auto values = elements<float>(ConstTensorView(grad));
    std::copy(values.begin(), values.end(),
              copy_.begin() + offsets_[static_cast<std::size_t>(index)]);
    seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  }
  return hook_.on_gradient(index, grad, stream);
}

Result<bool> MeasuredGradients::arrived(int, bool) {
  return Status(Code::kUnsupported,
                "no main gradients where averages are measured, which takes whole ones");
}

Status MeasuredGradients::before_optimizer_step(const Stream& stream) {
  GW_TRY(hook_.before_optimizer_step(stream));
  errors_.reset();
  if (measures()) GW_TRY(measure());
  ++step_;
  return {};
}

Status MeasuredGradients::measure() {
  const auto start = Clock::now();
  const std::uint64_t sent = communicator_.transport_stats().bytes_sent;
  GW_ASSIGN(Work work, communicator_.all_reduce(
                           view_of(std::span<float>(copy_)), ReduceOp::kMean,
                           {.algorithm = "ring", .deadline = std::nullopt, .stream = {}}));
  GW_TRY(work.wait());
  double difference = 0;
  for (std::size_t t = 0; t < gradients_.size(); ++t) {
    const auto average = elements<float>(ConstTensorView(gradients_[t]));
    const float* exact = copy_.data() + offsets_[t];
    for (std::size_t i = 0; i < average.size(); ++i) {
      const double off = static_cast<double>(average[i]) - static_cast<double>(exact[i]);
      difference += off * off;
    }
  }
  const double norm = squares(std::span<const float>(copy_));
  std::array<double, 1> residual{residual_squares(hook_.aggregator())};
  GW_TRY(hook_.average(residual));
  errors_ = GradientErrors{
      .nmse = difference / norm, .exact_norm = std::sqrt(norm), .residual_norm = std::nullopt};
  if (std::isfinite(residual[0])) errors_->residual_norm = std::sqrt(residual[0]);
  bytes_ += communicator_.transport_stats().bytes_sent - sent;
  seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return {};
}

}  // namespace gradwire
