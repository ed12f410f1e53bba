#include "trainer/gradient_fold.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/elements.h"
#include "device/ops.h"
#include "trainer/clipping.h"
#include "trainer/cuda/make_kernels.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

std::span<float> floats_of(const Buffer& buffer) {
  const ByteSpan bytes = buffer.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

constexpr std::size_t kNarrowBytes = sizeof(std::uint16_t);

}  // namespace

Result<GradientFold> GradientFold::create(const ParameterTable& table,
                                          const TrainingOptions& options, const Demands& demands) {
  GradientFold fold;
  fold.table_ = &table;
  fold.accumulate_ = options.accumulate;
  fold.clip_worker_ = options.clip_worker;
  fold.precision_ = options.precision;
  fold.needs_whole_ = options.clip_worker > 0 || options.loss_scale.active();
  const auto elems = static_cast<std::size_t>(parameter_elems(table));
  const std::size_t bytes = elems * sizeof(float);
  const MemoryArena& device = options.places.device;
  fold.stream_ = device.stream();
  GW_ASSIGN(fold.there_, make_step_kernels(device.stream()));
  if (fold.there_ != nullptr) {
    GW_ASSIGN(fold.numbers_, ReadBack::create(device, sizeof(double)));
  }
  const bool narrow = options.precision != Precision::kF32;
  fold.keeps_sums_ = options.main_gradients || !narrow;
  const MemoryClass sums = narrow ? MemoryClass::kMainGradients : MemoryClass::kGradients;
  GW_ASSIGN(fold.grads_, PagedTensors::create(table, device, sums));
  if (!fold.keeps_sums_) {
    GW_ASSIGN(fold.stored_gradients_, StoredGradients::create(device, options.precision, elems));
    return fold;
  }
  fold.grads_.take_all();
  if (options.accumulate > 1) {
    GW_ASSIGN(fold.micro_grads_, PagedTensors::create(table, device, MemoryClass::kWorkspace));
    fold.drops_micro_ = demands.gradients_pass && !fold.needs_whole_;
  }
  if (narrow) {
    fold.keeps_stored_ = !demands.gradients_pass;
    GW_ASSIGN(
        fold.stored_,
        fold.keeps_stored_
            ? device.allocate(MemoryClass::kGradients, kNarrowBytes * elems)
            : device.allocate(MemoryClass::kWorkspace,
                              kNarrowBytes * static_cast<std::size_t>(fold.grads_.most_elems())));
  }
  if (options.momentum_at == MomentumAt::kWorker) fold.momentum_at_worker_ = options.momentum;
  for (int micro = 0; fold.momentum_at_worker_ > 0 && micro < options.accumulate; ++micro) {
    GW_ASSIGN(Buffer own, device.allocate(MemoryClass::kOther, bytes));
    fold.momentum_.push_back(std::move(own));
  }
  return fold;
}

std::span<float> GradientFold::fresh(int micro) {
  return micro == 0 || !keeps_sums_ ? grads_.all() : micro_grads_.all();
}

std::span<float> GradientFold::gradients() { return grads_.all(); }

std::span<float> GradientFold::gradient(int index) { return grads_.tensor(index); }

TensorView GradientFold::view(int index) {
  const ParameterInfo& info = (*table_)[static_cast<std::size_t>(index)];
  return {reinterpret_cast<std::byte*>(gradient(index).data()), info.shape, DType::kF32,
          stream_.device};
}

GradientFold::Range GradientFold::range(int index) const {
  const ParameterInfo& info = (*table_)[static_cast<std::size_t>(index)];
  return {static_cast<std::size_t>(info.offset), static_cast<std::size_t>(info.shape.elems())};
}

std::span<float> GradientFold::fresh(int micro, Range range) {
  return fresh(micro).subspan(range.first, range.count);
}

// The values become what their storage keeps of them.
Status GradientFold::keep_stored(std::span<float> values, Range range) {
  if (precision_ == Precision::kF32) return {};
  const std::span<std::uint16_t> stored(
      reinterpret_cast<std::uint16_t*>(stored_.bytes().data()) + (keeps_stored_ ? range.first : 0),
      range.count);
  GW_TRY(store(precision_, values, stored, stream_));
  return load(precision_, stored, values, stream_);
}

TensorView GradientFold::view(std::span<float> values) const {
  return {reinterpret_cast<std::byte*>(values.data()),
          Shape::vector(static_cast<std::int64_t>(values.size())), DType::kF32, stream_.device};
}

// Both become momentum u + own.
Status GradientFold::take_momentum(std::span<float> u, std::span<float> own) {
  const auto momentum = static_cast<float>(momentum_at_worker_);
  if (there_ != nullptr) return there_->take_momentum(momentum, u, own);
  add_momentum(u, own, momentum);
  std::copy(u.begin(), u.end(), own.begin());
  return {};
}

// Momentum of that worker, and the fold over the rank's micro-batches.
Status GradientFold::combine(int micro, Range range) {
  const std::span<float> own = fresh(micro, range);
  if (!momentum_.empty()) {
    const std::span<float> u =
        floats_of(momentum_[static_cast<std::size_t>(micro)]).subspan(range.first, range.count);
    GW_TRY(take_momentum(u, own));
  }
  const std::span<float> sum = fresh(0, range);
  if (micro > 0) {
    GW_TRY(reduce(ReduceOp::kSum, view(own), view(sum), stream_));
  }
  if (micro + 1 < accumulate_ || accumulate_ == 1) return {};
  return scale(view(sum), 1.0 / accumulate_, stream_);
}

// One micro-batch's, stored, joins the others', which are.
Status GradientFold::combine_stored(int index, int micro) {
  const std::span<float> own = grads_.tensor(index);
  const std::size_t first = range(index).first;
  GW_TRY(micro == 0 ? stored_gradients_.keep_scaled(own, first)
                    : stored_gradients_.add_scaled(own, first));
  if (micro + 1 < accumulate_ || needs_whole_) {
    grads_.drop(index);
    return {};
  }
  return bring(index);
}

Status GradientFold::bring(int index) {
  grads_.take(index);
  const std::span<float> own = grads_.tensor(index);
  GW_TRY(stored_gradients_.read(range(index).first, own));
  return accumulate_ == 1 ? Status() : scale(view(own), 1.0 / accumulate_, stream_);
}

Status GradientFold::put_away(int index) {
  GW_TRY(stored_gradients_.keep(grads_.tensor(index), range(index).first));
  grads_.drop(index);
  return {};
}

Result<bool> GradientFold::finite() {
  if (!keeps_sums_) return stored_gradients_.finite();
  if (there_ != nullptr) {
    GW_TRY(there_->find_not_finite(gradients(), numbers_.there<std::uint32_t>().first(1)));
    GW_ASSIGN(const std::span<const std::uint32_t> bad, numbers_.read<std::uint32_t>());
    return bad[0] == 0;
  }
  return all_finite(gradients());
}

Result<double> GradientFold::norm() {
  if (!keeps_sums_) return stored_gradients_.norm();
  if (there_ == nullptr) return gradwire::norm(gradients());
  GW_TRY(there_->sum_of_squares(gradients(), numbers_.there<double>()));
  GW_ASSIGN(const std::span<const double> square, numbers_.read<double>());
  length_ = std::sqrt(square[0]);
  return length_;
}

Status GradientFold::shorten(double length, double most) {
  if (!keeps_sums_) {
    stored_gradients_.shorten(length, most);
    return {};
  }
  if (there_ == nullptr) {
    clip_to(gradients(), length, most);
    return {};
  }
  if (length != length_) {
    const double square = length * length;
    GW_TRY(numbers_.write(std::span<const double>(&square, 1)));
  }
  return there_->clip(numbers_.there<double>(), most, gradients());
}

// A worker's own gradient, before anybody else sees it.
Status GradientFold::clip_worker(std::span<float> own) {
  if (clip_worker_ == 0) return {};
  if (there_ != nullptr) {
    GW_TRY(there_->sum_of_squares(own, numbers_.there<double>()));
    return there_->clip(numbers_.there<double>(), clip_worker_, own);
  }
  clip_to(own, gradwire::norm(own), clip_worker_);
  return {};
}

Status GradientFold::ready(int index, int micro) {
  grads_.take(index);
  if (!keeps_sums_) return combine_stored(index, micro);
  if (micro > 0) micro_grads_.take(index);
  GW_TRY(keep_stored(fresh(micro, range(index)), range(index)));
  if (needs_whole_) return {};
  GW_TRY(combine(micro, range(index)));
  if (micro > 0 && drops_micro_) micro_grads_.drop(index);
  return {};
}

Status GradientFold::micro_batch_done(int micro, double loss_scale) {
  if (!needs_whole_ || !keeps_sums_) return {};
  const std::span<float> own = fresh(micro);
  if (loss_scale != 1) GW_TRY(scale(view(own), 1 / loss_scale, stream_));
  GW_TRY(clip_worker(own));
  return combine(micro, {0, own.size()});
}

std::vector<NamedTensor> GradientFold::state() {
  std::vector<NamedTensor> tensors;
  for (std::size_t micro = 0; micro < momentum_.size(); ++micro) {
    for (NamedTensor& named : named_tensors(*table_, floats_of(momentum_[micro]), stream_.device)) {
      named.name = "worker" + std::to_string(micro) + "." + named.name + ".momentum";
      tensors.push_back(std::move(named));
    }
  }
  return tensors;
}

}  // namespace gradwire
