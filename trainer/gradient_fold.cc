#include "trainer/gradient_fold.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
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
                                          const TrainingOptions& options, const Demands& demands,
                                          int at_a_time) {
  GradientFold fold;
  const auto micro_batches = static_cast<std::size_t>(options.accumulate);
  fold.joined_.resize(table.size());
  fold.in_.resize(table.size() * micro_batches);
  fold.done_.resize(micro_batches);
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
  } else {
    fold.grads_.take_all();
    fold.drops_micro_ = demands.gradients_pass && !fold.needs_whole_;
  }
  fold.each_ = demands.each_micro_batch && options.accumulate > 1;
  fold.adds_ = fold.each_ && !demands.own_optimizer;
  const int others = options.accumulate - (fold.keeps_sums_ ? 1 : 0);
  const int slots = fold.each_ ? (fold.adds_ ? 1 : 0) : std::min(others, at_a_time);
  for (int slot = 0; slot < slots; ++slot) {
    PagedTensors memory = fold.grads_;
    if (fold.keeps_sums_ || slot > 0) {
      GW_ASSIGN(memory, PagedTensors::create(table, device, MemoryClass::kWorkspace));
    }
    fold.slots_.push_back({std::move(memory)});
  }
  if (!fold.keeps_sums_) return fold;
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

void GradientFold::begin_step(double loss_scale) {
  stored_gradients_.begin_step(loss_scale);
  std::ranges::fill(joined_, 0);
  in_.assign(in_.size(), false);
  done_.assign(done_.size(), false);
  joined_whole_ = 0;
  for (Slot& slot : slots_) slot.micro = -1;
}

Result<std::span<float>> GradientFold::begin(int micro) {
  if (each_) return handed_over().all();
  if (keeps_sums_ && micro == 0) return grads_.all();
  for (Slot& slot : slots_) {
    if (slot.micro >= 0) continue;
    slot.micro = micro;
    slot.held = static_cast<int>(table_->size());
    return slot.grads.all();
  }
  return Status(Code::kInternal,
                format("micro-batch %d begins while %zu hold gradients (expected fewer)", micro,
                       slots_.size()));
}

GradientFold::Slot* GradientFold::slot_of(int micro) {
  const auto at = std::ranges::find(slots_, micro, &Slot::micro);
  return at == slots_.end() ? nullptr : &*at;
}

const PagedTensors& GradientFold::memory_of(int micro) {
  if (each_) return handed_over();
  const Slot* const slot = slot_of(micro);
  return slot == nullptr ? grads_ : slot->grads;
}

std::span<float> GradientFold::gradients() { return grads_.all(); }

std::span<float> GradientFold::gradient(int index) { return grads_.tensor(index); }

TensorView GradientFold::view(int index) {
  const ParameterInfo& info = (*table_)[static_cast<std::size_t>(index)];
  return {reinterpret_cast<std::byte*>(handed_over().tensor(index).data()), info.shape, DType::kF32,
          stream_.device};
}

GradientFold::Range GradientFold::range(int index) const {
  const ParameterInfo& info = (*table_)[static_cast<std::size_t>(index)];
  return {static_cast<std::size_t>(info.offset), static_cast<std::size_t>(info.shape.elems())};
}

std::span<float> GradientFold::part_of(int micro, Range range) {
  return memory_of(micro).all().subspan(range.first, range.count);
}

std::vector<bool>::reference GradientFold::is_in(int index, int micro) {
  return in_[static_cast<std::size_t>(index * accumulate_ + micro)];
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
  const std::span<float> own = part_of(micro, range);
  if (!momentum_.empty()) {
    const std::span<float> u =
        floats_of(momentum_[static_cast<std::size_t>(micro)]).subspan(range.first, range.count);
    GW_TRY(take_momentum(u, own));
  }
  if (each_) return scale(view(own), 1.0 / accumulate_, stream_);
  const std::span<float> sum = gradients().subspan(range.first, range.count);
  if (micro > 0) {
    GW_TRY(reduce(ReduceOp::kSum, view(own), view(sum), stream_));
  }
  if (micro + 1 < accumulate_ || accumulate_ == 1) return {};
  return scale(view(sum), 1.0 / accumulate_, stream_);
}

Status GradientFold::add_up(int micro) {
  if (!adds_) return {};
  const std::span<float> came = handed_over().all();
  if (micro > 0) return reduce(ReduceOp::kSum, view(came), view(gradients()), stream_);
  return copy_bytes(std::as_bytes(came), stream_.device, std::as_writable_bytes(gradients()),
                    stream_.device, stream_);
}

// One micro-batch's, stored, joins the others', which are.
Status GradientFold::combine_stored(int index, int micro) {
  const PagedTensors& memory = memory_of(micro);
  const std::span<float> own = memory.tensor(index);
  const std::size_t first = range(index).first;
  GW_TRY(micro == 0 ? stored_gradients_.keep_scaled(own, first)
                    : stored_gradients_.add_scaled(own, first));
  const bool last = micro + 1 == accumulate_ && !needs_whole_;
  // What the sum is brought to needs not go and come.
  if (!last || memory.all().data() != grads_.all().data()) memory.drop(index);
  return last ? bring(index) : Status();
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
    GW_TRY(there_->find_not_finite(handed_over().all(), numbers_.there<std::uint32_t>().first(1)));
    GW_ASSIGN(const std::span<const std::uint32_t> bad, numbers_.read<std::uint32_t>());
    return bad[0] == 0;
  }
  return all_finite(handed_over().all());
}

Result<double> GradientFold::norm() {
  if (!keeps_sums_) return stored_gradients_.norm();
  if (there_ == nullptr) return gradwire::norm(gradients());
  GW_TRY(there_->sum_of_squares(gradients(), numbers_.there<double>()));
  GW_ASSIGN(const std::span<const double> square, numbers_.read<double>());
  length_ = std::sqrt(square[0]);
  return length_;
}

Status GradientFold::sums_of_squares(std::span<double> by_tensor) {
  for (std::size_t t = 0; t < table_->size(); ++t) {
    const std::span<const float> own = gradient(static_cast<int>(t));
    if (there_ == nullptr) {
      by_tensor[t] = sum_of_squares(own);
      continue;
    }
    GW_TRY(there_->sum_of_squares(own, numbers_.there<double>()));
    GW_ASSIGN(const std::span<const double> square, numbers_.read<double>());
    by_tensor[t] = square[0];
  }
  return {};
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

// It is its turn: parameter `index` of `micro` becomes part of the sum.
Status GradientFold::join(int index, int micro) {
  GW_TRY(keeps_sums_ ? combine(micro, range(index)) : combine_stored(index, micro));
  Slot* const slot = slot_of(micro);
  if (slot == nullptr) return {};
  if (drops_micro_) slot->grads.drop(index);
  if (--slot->held == 0) slot->micro = -1;
  return {};
}

Result<bool> GradientFold::ready(int index, int micro) {
  const PagedTensors& memory = memory_of(micro);
  if (keeps_sums_) grads_.take(index);
  memory.take(index);
  if (keeps_sums_) {
    GW_TRY(keep_stored(memory.tensor(index), range(index)));
    if (needs_whole_) return false;
  }
  if (each_) {
    GW_TRY(combine(micro, range(index)));
    return true;
  }
  is_in(index, micro) = true;
  int& joined = joined_[static_cast<std::size_t>(index)];
  for (; joined < accumulate_ && is_in(index, joined); ++joined) GW_TRY(join(index, joined));
  return joined == accumulate_ && !needs_whole_;
}

Status GradientFold::micro_batch_done(int micro, double loss_scale) {
  if (!needs_whole_ || !keeps_sums_) return {};
  const std::span<float> own = memory_of(micro).all();
  if (loss_scale != 1) GW_TRY(scale(view(own), 1 / loss_scale, stream_));
  GW_TRY(clip_worker(own));
  if (each_) return combine(micro, {0, own.size()});
  done_[static_cast<std::size_t>(micro)] = true;
  for (; joined_whole_ < accumulate_ && done_[static_cast<std::size_t>(joined_whole_)];
       ++joined_whole_) {
    GW_TRY(combine(joined_whole_, {0, own.size()}));
    if (Slot* const slot = slot_of(joined_whole_); slot != nullptr) slot->micro = -1;
  }
  return {};
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
