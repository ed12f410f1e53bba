#include "trainer/step/gradient_fold.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "device/ops.h"
#include "trainer/cuda/make_kernels.h"
#include "trainer/sgd.h"
#include "trainer/step/clipping.h"

namespace gradwire {
namespace {

std::span<float> floats_of(const Buffer& buffer) {
  const ByteSpan bytes = buffer.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

bool has_worker_momentum(const TrainingOptions& options) {
  return options.momentum_at == MomentumAt::kWorker && options.momentum > 0;
}

bool each_by_itself(const TrainingOptions& options, const Demands& demands) {
  return demands.each_micro_batch && options.accumulate > 1;
}

}  // namespace

GradientFold::Form GradientFold::form_of(const TrainingOptions& options, const Demands& demands) {
  const bool wide = options.precision == Precision::kF32 || !demands.takes_narrow ||
                    options.clip_worker > 0 || has_worker_momentum(options);
  return gradient_form({.wide = wide,
                        .sums_first = options.accumulate > 1 && !each_by_itself(options, demands),
                        .main_gradients = options.main_gradients});
}

bool GradientFold::needs_whole(const TrainingOptions& options, const Demands& demands) {
  if (options.clip_worker > 0) return true;
  if (!options.loss_scale.active()) return false;
  return form_of(options, demands) == Form::kWide || !demands.takes_scaled;
}

Result<GradientFold> GradientFold::create(GradientTable table, const TrainingOptions& options,
                                          const Demands& demands, int at_a_time) {
  GradientFold fold;
  const auto micro_batches = static_cast<std::size_t>(options.accumulate);
  fold.joined_.resize(table.tensors.size());
  fold.in_.resize(table.tensors.size() * micro_batches);
  fold.done_.resize(micro_batches);
  fold.table_ = std::move(table);
  fold.accumulate_ = options.accumulate;
  fold.clip_worker_ = options.clip_worker;
  if (fold.clip_worker_ > 0 && options.peers != nullptr && options.share != nullptr) {
    fold.count_among_peers(*options.share, *options.peers);
  }
  fold.precision_ = options.precision;
  fold.form_ = form_of(options, demands);
  fold.needs_whole_ = needs_whole(options, demands);
  fold.each_ = each_by_itself(options, demands);
  fold.adds_ = fold.each_ && !demands.own_optimizer;
  fold.passes_ = demands.gradients_pass && (options.accumulate == 1 || fold.each_);
  fold.uses_by_micro_ = fold.each_ || fold.clip_worker_ > 0 || has_worker_momentum(options);
  fold.drops_micro_ = fold.form_ != Form::kWide || !fold.needs_whole_;
  fold.arena_ = options.places.device;
  fold.stream_ = fold.arena_.stream();
  GW_ASSIGN(fold.kernels_, make_step_kernels(fold.stream_));
  if (options.precision != Precision::kF32) {
    GW_ASSIGN(fold.there_, make_stored_kernels(options.precision, fold.stream_));
  }
  GW_TRY(fold.take_memory(at_a_time));
  GW_TRY(fold.take_workers(options));
  return fold;
}

Status GradientFold::take_memory(int at_a_time) {
  const bool there = stream_.device.space == MemorySpace::kCuda;
  const bool narrow = precision_ != Precision::kF32;
  if (form_ != Form::kStored || adds_) {
    GW_ASSIGN(grads_,
              PagedTensors::create(table_.tensors, arena_,
                                   narrow ? MemoryClass::kMainGradients : MemoryClass::kGradients));
    if (!(passes_ && form_ == Form::kWide) || there) take_parameters(grads_);
  }
  // On a device all of a tensor is rounded at once, so there not in place.
  if (form_ == Form::kStored || (form_ == Form::kSums && there)) {
    GW_ASSIGN(stored_, PagedTensors::create(table_.tensors, arena_, MemoryClass::kGradients,
                                            dtype_of(precision_)));
    if (!passes_ || there) take_parameters(stored_);
  }
  const int others = accumulate_ - (form_ == Form::kStored ? 0 : 1);
  const int one = adds_ || form_ == Form::kStored ? 1 : 0;
  GW_TRY(take_slots(each_ ? one : std::min(others, at_a_time)));
  take_uses();
  for (const NamedTensor& named : handed_over().tensors) views_.push_back(named.tensor);
  if (!needs_whole_) return {};
  std::vector<TensorView> all = views_;
  for (int index = 0; form_ == Form::kSums && index < table_.parameters(); ++index) {
    all[static_cast<std::size_t>(index)] = grads_.view(index);
  }
  GW_ASSIGN(whole_, StepGradients::create(arena_, std::move(all)));
  return {};
}

void GradientFold::take_parameters(const PagedTensors& memory) const {
  for (int index = 0; index < table_.parameters(); ++index) memory.take(index);
}

// Gradients of uses stay where they wait for their parameter's: where micro-batches are written,
// or in the sum.
void GradientFold::take_uses() const {
  const auto take = [&](const PagedTensors& memory) {
    for (int index = table_.parameters(); index < memory.size(); ++index) memory.take(index);
  };
  if (!uses_by_micro_) return take(form_ == Form::kStored ? stored_ : grads_);
  for (const Slot& slot : slots_) take(slot.grads);
  if (slots_.empty() || (!each_ && form_ != Form::kStored)) take(grads_);
}

Status GradientFold::take_slots(int count) {
  for (int slot = 0; slot < count; ++slot) {
    GW_ASSIGN(PagedTensors memory,
              PagedTensors::create(table_.tensors, arena_, MemoryClass::kWorkspace));
    slots_.push_back({std::move(memory)});
  }
  return {};
}

Status GradientFold::take_workers(const TrainingOptions& options) {
  if (clip_worker_ > 0 && kernels_ != nullptr) {
    GW_ASSIGN(numbers_, ReadBack::create(arena_, sizeof(double)));
  }
  if (!has_worker_momentum(options)) return {};
  momentum_at_worker_ = options.momentum;
  const auto bytes = static_cast<std::size_t>(table_.parameter_elems()) * sizeof(float);
  for (int micro = 0; micro < accumulate_; ++micro) {
    GW_ASSIGN(Buffer own, arena_.allocate(MemoryClass::kOther, bytes));
    momentum_.push_back(std::move(own));
  }
  return {};
}

HandedGradients GradientFold::handed_over() const {
  HandedGradients handed;
  const PagedTensors* memory = &stored_;
  if (form_ == Form::kWide) memory = adds_ ? &slots_.front().grads : &grads_;
  if (form_ == Form::kSums && stored_.size() == 0) memory = &grads_;
  handed.tensors = memory->named();
  handed.tensors.resize(static_cast<std::size_t>(table_.parameters()));
  if (passes_) handed.passing = *memory;
  if (form_ != Form::kSums) return handed;
  for (NamedTensor& named : handed.tensors) {
    const TensorView& all = named.tensor;
    named.tensor = TensorView(all.data(), all.shape(), dtype_of(precision_), all.device());
  }
  return handed;
}

std::vector<TensorView> GradientFold::outcome() const {
  if (!adds_) return views_;
  std::vector<TensorView> sums;
  for (int index = 0; index < table_.parameters(); ++index) sums.push_back(grads_.view(index));
  return sums;
}

std::span<float> GradientFold::gradients() const {
  return grads_.all().first(static_cast<std::size_t>(table_.parameter_elems()));
}

TensorView GradientFold::sum(int index) const {
  return (form_ == Form::kStored ? stored_ : grads_).view(index);
}

TensorView GradientFold::micro_batch(int index, int micro) { return memory_of(micro).view(index); }

void GradientFold::begin_step() {
  std::ranges::fill(joined_, 0);
  in_.assign(in_.size(), false);
  done_.assign(done_.size(), false);
  joined_whole_ = 0;
  for (Slot& slot : slots_) slot.micro = -1;
}

Result<std::span<float>> GradientFold::begin(int micro) {
  if (each_ && slots_.empty()) return grads_.all();
  if (each_) return slots_.front().grads.all();
  if (form_ != Form::kStored && micro == 0) return grads_.all();
  for (Slot& slot : slots_) {
    if (slot.micro >= 0) continue;
    slot.micro = micro;
    slot.held = uses_by_micro_ ? table_.parameters() : static_cast<int>(table_.tensors.size());
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
  if (each_) return slots_.empty() ? grads_ : slots_.front().grads;
  const Slot* const slot = slot_of(micro);
  return slot == nullptr ? grads_ : slot->grads;
}

Result<TensorView> GradientFold::hand_over(int index) {
  if (form_ == Form::kSums) {
    const std::span<float> sum = grads_.tensor(index);
    if (stored_.size() > 0) {
      GW_TRY(store(precision_, sum, stored_.halves(index), stream_));
    } else {
      static_cast<void>(store_in_place(precision_, sum));
    }
  }
  return views_[static_cast<std::size_t>(index)];
}

GradientFold::Range GradientFold::range(int index) const {
  const ParameterInfo& info = table_.tensors[static_cast<std::size_t>(index)];
  return {static_cast<std::size_t>(info.offset), static_cast<std::size_t>(info.shape.elems())};
}

// Of the parameter's own gradient and of all of its uses.
bool GradientFold::is_whole(int parameter) const {
  for (int index = 0; index < gradients_held(); ++index) {
    if (parameter_of(index) != parameter || (uses_by_micro_ && is_use(index))) continue;
    if (joined_[static_cast<std::size_t>(index)] < accumulate_) return false;
  }
  return true;
}

// To its parameter's, both of them sums.
Status GradientFold::add_use(int use) {
  return reduce(ReduceOp::kSum, sum(use), sum(parameter_of(use)), stream_);
}

// To its parameter's, both of one micro-batch, as 16 bits keep it.
Status GradientFold::add_use(int use, std::span<float> micro) {
  const Range from = range(use);
  const Range to = range(parameter_of(use));
  const std::span<float> both = micro.subspan(to.first, to.count);
  GW_TRY(reduce(ReduceOp::kSum, view(micro.subspan(from.first, from.count)), view(both), stream_));
  return round(both);
}

std::span<float> GradientFold::part_of(int micro, Range range) {
  return memory_of(micro).all().subspan(range.first, range.count);
}

std::vector<bool>::reference GradientFold::is_in(int index, int micro) {
  return in_[static_cast<std::size_t>(index * accumulate_ + micro)];
}

// The values become what 16 bits keep of them.
Status GradientFold::round(std::span<float> values) const {
  if (precision_ == Precision::kF32) return {};
  if (there_ != nullptr) return there_->round(values);
  round_to(precision_, values);
  return {};
}

TensorView GradientFold::view(std::span<float> values) const {
  return {reinterpret_cast<std::byte*>(values.data()),
          Shape::vector(static_cast<std::int64_t>(values.size())), DType::kF32, stream_.device};
}

// Both become momentum u + own.
Status GradientFold::take_momentum(std::span<float> u, std::span<float> own) {
  const auto momentum = static_cast<float>(momentum_at_worker_);
  if (kernels_ != nullptr) return kernels_->take_momentum(momentum, u, own);
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
  const std::span<float> sum = grads_.all().subspan(range.first, range.count);
  if (micro > 0) {
    GW_TRY(reduce(ReduceOp::kSum, view(own), view(sum), stream_));
  }
  if (micro + 1 < accumulate_ || accumulate_ == 1) return {};
  return scale(view(sum), 1.0 / accumulate_, stream_);
}

// sum += what 16 bits keep of own, rounded to them again.
Status GradientFold::add_stored(std::span<float> own, std::span<std::uint16_t> sum) const {
  if (there_ != nullptr) return there_->add(own, sum);
  GW_TRY(round(own));
  constexpr std::size_t kTogether = 1024;
  std::array<float, kTogether> wide{};
  for (std::size_t at = 0; at < own.size(); at += kTogether) {
    const std::size_t count = std::min(kTogether, own.size() - at);
    load(precision_, sum.subspan(at, count), std::span(wide).first(count));
    for (std::size_t i = 0; i < count; ++i) wide[i] += own[at + i];
    store(precision_, std::span(wide).first(count), sum.subspan(at, count));
  }
  return {};
}

// One micro-batch's joins the others' in 16 bits.
Status GradientFold::combine_stored(int index, int micro) {
  const std::span<float> own = memory_of(micro).tensor(index);
  const std::span<std::uint16_t> sum = stored_.halves(index);
  stored_.take(index);
  if (each_) {
    GW_TRY(round(own));  // which shows what does not fit
    GW_TRY(scale(view(own), 1.0 / accumulate_, stream_));
  }
  if (each_ || micro == 0) return store(precision_, own, sum, stream_);
  GW_TRY(add_stored(own, sum));
  return micro + 1 < accumulate_ ? Status()
                                 : scale(stored_.view(index), 1.0 / accumulate_, stream_);
}

Status GradientFold::add_up(int micro) {
  if (!adds_) return {};
  for (int index = 0; index < table_.parameters(); ++index) {
    const std::span<float> sum = grads_.tensor(index);
    if (form_ == Form::kStored) {
      const std::span<const std::uint16_t> came = stored_.halves(index);
      GW_TRY(micro == 0 ? load(precision_, came, sum, stream_)
                        : add(precision_, came, sum, there_.get()));
    } else {
      const std::span<float> came = slots_.front().grads.tensor(index);
      GW_TRY(micro > 0 ? reduce(ReduceOp::kSum, view(came), view(sum), stream_)
                       : arena_.copy(came, sum));
    }
  }
  return {};
}

void GradientFold::count_among_peers(const ModelShare& share, LayerPeers& peers) {
  peers_ = &peers;
  for (int index = 0; index < table_.parameters(); ++index) {
    const std::string& name = table_.tensors[static_cast<std::size_t>(index)].name;
    const auto same = std::ranges::find(share.tensors, name, &ModelShare::Tensor::name);
    counts_.push_back(same == share.tensors.end() ||
                      owner_of(same->held, share.rank) == share.rank);
  }
  squares_.resize(counts_.size());
}

// Among peers one sum a tensor, added in the model's order: what several of them have counts once.
Result<double> GradientFold::worker_norm(std::span<const float> own) {
  if (peers_ == nullptr) return gradwire::norm(own);
  for (std::size_t i = 0; i < squares_.size(); ++i) {
    const Range at = range(static_cast<int>(i));
    squares_[i] = counts_[i] ? sum_of_squares(own.subspan(at.first, at.count)) : 0;
  }
  peers_->start_sum(std::span(squares_));
  peers_->await();
  GW_TRY(peers_->status());
  return std::sqrt(std::accumulate(squares_.begin(), squares_.end(), 0.0));
}

// A worker's own gradient, before anybody else sees it.
Status GradientFold::clip_worker(std::span<float> own) {
  if (clip_worker_ == 0) return {};
  if (kernels_ != nullptr) {
    GW_TRY(kernels_->sum_of_squares(own, numbers_.there<double>()));
    return kernels_->clip(numbers_.there<double>(), clip_worker_, own);
  }
  GW_ASSIGN(const double length, worker_norm(own));
  clip_to(own, length, clip_worker_);
  return {};
}

// It is its turn: parameter `index` of `micro` becomes part of the sum.
Status GradientFold::join(int index, int micro) {
  GW_TRY(form_ == Form::kStored ? combine_stored(index, micro) : combine(micro, range(index)));
  Slot* const slot = slot_of(micro);
  if (slot == nullptr) return {};
  // The next micro-batch writes it again: to fault its pages in each time took longer than adding.
  if (drops_micro_) slot->grads.offer(index);
  if (--slot->held == 0) slot->micro = -1;
  return {};
}

Result<bool> GradientFold::ready(int index, int micro) {
  const PagedTensors& memory = memory_of(micro);
  memory.take(index);
  if (form_ != Form::kStored) GW_TRY(round(memory.tensor(index)));
  if (form_ == Form::kWide && needs_whole_) return false;
  if (uses_by_micro_) {
    // Layers that are tied come before what they are tied to on the way back.
    if (is_use(index)) return false;
    GW_TRY(for_each_use(index, [&](int use) { return add_use(use, memory.all()); }));
  }
  if (each_) {
    if (form_ == Form::kWide) {
      GW_TRY(combine(micro, range(index)));
    } else {
      GW_TRY(combine_stored(index, micro));
      memory.offer(index);
    }
    return !needs_whole_;
  }
  is_in(index, micro) = true;
  int& joined = joined_[static_cast<std::size_t>(index)];
  const int before = joined;
  for (; joined < accumulate_ && is_in(index, joined); ++joined) GW_TRY(join(index, joined));
  const int parameter = parameter_of(index);
  if (joined == before || !is_whole(parameter)) return false;
  if (!uses_by_micro_) {
    GW_TRY(for_each_use(parameter, [&](int use) { return add_use(use); }));
  }
  return !needs_whole_;
}

// kWide: what has to be done with a whole gradient before it joins the others'.
Status GradientFold::finish_micro(int micro, double loss_scale) {
  const std::span<float> all = memory_of(micro).all();
  for (int use = table_.parameters(); uses_by_micro_ && use < gradients_held(); ++use) {
    GW_TRY(add_use(use, all));
  }
  if (loss_scale != 1) GW_TRY(scale(view(all), 1 / loss_scale, stream_));
  return clip_worker(all.first(static_cast<std::size_t>(table_.parameter_elems())));
}

Status GradientFold::micro_batch_done(int micro, double loss_scale) {
  if (!needs_whole_ || form_ != Form::kWide) return {};
  GW_TRY(finish_micro(micro, loss_scale));
  const std::int64_t joins = uses_by_micro_ ? table_.parameter_elems() : table_.elems();
  const Range all{0, static_cast<std::size_t>(joins)};
  if (each_) return combine(micro, all);
  done_[static_cast<std::size_t>(micro)] = true;
  const int before = joined_whole_;
  for (; joined_whole_ < accumulate_ && done_[static_cast<std::size_t>(joined_whole_)];
       ++joined_whole_) {
    GW_TRY(combine(joined_whole_, all));
    if (Slot* const slot = slot_of(joined_whole_); slot != nullptr) slot->micro = -1;
  }
  if (joined_whole_ == before || joined_whole_ < accumulate_) return {};
  for (int use = table_.parameters(); !uses_by_micro_ && use < gradients_held(); ++use) {
    GW_TRY(add_use(use));
  }
  return {};
}

std::vector<NamedTensor> GradientFold::state() {
  const ParameterTable parameters(table_.tensors.begin(),
                                  table_.tensors.begin() + table_.parameters());
  std::vector<NamedTensor> tensors;
  for (std::size_t micro = 0; micro < momentum_.size(); ++micro) {
    for (NamedTensor& named :
         named_tensors(parameters, floats_of(momentum_[micro]), stream_.device)) {
      named.name = "worker" + std::to_string(micro) + "." + named.name + ".momentum";
      tensors.push_back(std::move(named));
    }
  }
  return tensors;
}

}  // namespace gradwire
