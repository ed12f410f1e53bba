#include "trainer/training.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/elements.h"
#include "base/hash.h"
#include "base/text.h"
#include "device/host_copy.h"

namespace gradwire {
namespace {

constexpr std::int64_t kPositionSize = 3;

// The trainer's own: momentum belongs to the workers where it is theirs.
OptimizerOptions optimizer_options(const TrainingOptions& options) {
  OptimizerOptions own = options.optimizer;
  own.momentum = options.momentum_at == MomentumAt::kServer ? options.momentum : 0;
  return own;
}

}  // namespace

Trainer::Trainer(const Model<float>& model, const DataSet& data, const TrainingOptions& options)
    : model_(&model),
      data_(&data),
      options_(options),
      steps_per_epoch_(data.epoch_samples() / options.batch),
      total_steps_(options.steps.value_or(options.epochs * steps_per_epoch_)),
      order_(data.order(options.seed, options.shuffle)) {}

Result<Trainer> Trainer::create(const Model<float>& model, const DataSet& data,
                                const TrainingOptions& options) {
  GW_TRY(check_training_options(options, data));
  Trainer trainer(model, data, options);
  GW_ASSIGN(trainer.pass_,
            BatchPass::create(model, data, options.batch / options.ranks / options.accumulate,
                              {options.recompute, options.places.device}));
  GW_ASSIGN(trainer.scaler_, LossScaler::create(options.loss_scale));
  GW_TRY(trainer.allocate());
  if (options.draws) GW_TRY(trainer.draw_parameters());
  return trainer;
}

// Drawn on the host, wherever they are to lie.
Status Trainer::draw_parameters() {
  const ParameterTable& table = model_->parameters();
  if (params_.device().space != MemorySpace::kCuda) {
    init_parameters<float>(table, options_.seed, master());
    return {};
  }
  std::vector<float> drawn(master().size());
  init_parameters<float>(table, options_.seed, drawn);
  return write_from_host(std::as_bytes(std::span(drawn)), whole_master());
}

// All parameters as one tensor.
TensorView Trainer::whole_master() const {
  const std::span<float> all = params_.all();
  return {reinterpret_cast<std::byte*>(all.data()),
          Shape::vector(static_cast<std::int64_t>(all.size())), DType::kF32, params_.device()};
}

// All memory of a run: the loop allocates nothing.
Status Trainer::allocate() {
  const ParameterTable& table = model_->parameters();
  const MemoryPlaces& places = options_.places;
  const bool own = options_.optimizer.name != "hook";
  // A hook's optimizer has its own master; what it offloads is its business.
  const Offload offload = own ? options_.offload : Offload::kNone;
  const bool narrow = options_.precision != Precision::kF32;
  const bool away = offload != Offload::kNone;
  const MemoryClass what = options_.gated_parameters ? MemoryClass::kGathered
                           : narrow || away          ? MemoryClass::kMaster
                                                     : MemoryClass::kParameters;
  GW_ASSIGN(params_, PagedTensors::create(table, away ? places.host : places.device, what));
  params_.take_all();
  if (!options_.gated_parameters) {
    GW_ASSIGN(compute_, ComputeParameters::create(*model_, options_.precision, offload, places));
  }
  GW_ASSIGN(fold_, GradientFold::create(table, options_));
  if (own) {
    GW_ASSIGN(optimizer_, make_optimizer(optimizer_options(options_), whole_slices(table), nullptr,
                                         away ? places.host : places.device));
  }
  if (away || !fold_.keeps_sums()) {
    GW_ASSIGN(chunked_, ChunkedStep::create(away ? places.host : places.device,
                                            away ? MemoryClass::kOther : MemoryClass::kWorkspace,
                                            away ? places.link : nullptr, options_.offload_chunk,
                                            parameter_elems(table)));
  }
  for (std::size_t layer = 0; layer < model_->layers(); ++layer) {
    layer_ends_.resize(static_cast<std::size_t>(model_->parameters_of(layer).second),
                       model_->parameters_of(layer).second);
  }
  GW_ASSIGN(saved_position_, Buffer::allocate(kPositionSize * sizeof(std::int64_t)));
  GW_ASSIGN(saved_scale_, Buffer::allocate(LossScaler::kStateSize * sizeof(double)));
  return {};
}

std::vector<LayerTensors> Trainer::openings(Way way) const {
  std::vector<LayerTensors> all;
  for (const std::size_t layer : pass_.walk().openings(way)) {
    const auto [first, end] = model_->parameters_read_by(layer);
    all.push_back({layer, first, end});
  }
  return all;
}

TrainerMemory Trainer::memory() {
  return {model_->parameters(), params_, fold_.paged(), options_.places, openings(Way::kForward),
          openings(Way::kBack)};
}

std::vector<NamedTensor> Trainer::parameters() {
  fresh_ = false;  // they may be written to
  return params_.named();
}

std::vector<NamedTensor> Trainer::gradients() {
  return named_tensors(model_->parameters(), fold_.gradients(), options_.places.device.device());
}

Result<std::uint64_t> Trainer::parameter_hash() const {
  GW_ASSIGN(const HostCopy all, HostCopy::of(whole_master()));
  return hash_bytes(all.bytes());
}

// What layers compute with has the parameters' last values from now on.
Status Trainer::refresh() {
  if (options_.gated_parameters) {
    computed_ = master();
    return {};
  }
  if (!fresh_) GW_TRY(compute_.store(master(), 0));
  fresh_ = true;
  computed_ = compute_.values(master());
  return {};
}

// What stands between passes and parameters; null: the hook's own, or nothing.
Result<std::unique_ptr<LayerGate>> Trainer::own_gate(GradientHook& hook) {
  if (!options_.gated_parameters) return compute_.gate(master());
  if (options_.precision == Precision::kF32 || hook.gate() == nullptr) {
    return std::unique_ptr<LayerGate>();
  }
  GW_ASSIGN(auto gate,
            RoundedGate::create(*hook.gate(), *model_, options_.precision, master(), stream()));
  return std::unique_ptr<LayerGate>(std::move(gate));
}

std::vector<NamedTensor> Trainer::state() {
  std::vector<NamedTensor> tensors;
  if (optimizer_) tensors = optimizer_->state();
  for (NamedTensor& momentum : fold_.state()) tensors.push_back(std::move(momentum));
  const TensorView position = saved_position_.tensor(Shape::vector(kPositionSize), DType::kI64);
  const auto numbers = elements<std::int64_t>(position);
  numbers[0] = position_.steps;
  numbers[1] = position_.updates;
  numbers[2] = optimizer_ ? optimizer_->steps() : 0;
  tensors.push_back({"trainer.position", position});
  if (!options_.loss_scale.active()) return tensors;
  const TensorView scale = saved_scale_.tensor(Shape::vector(LossScaler::kStateSize), DType::kF64);
  scaler_.save(elements<double>(scale));
  tensors.push_back({"trainer.loss_scale", scale});
  return tensors;
}

Status Trainer::adopt_state() {
  const auto numbers = elements<std::int64_t>(
      ConstTensorView(saved_position_.tensor(Shape::vector(kPositionSize), DType::kI64)));
  const bool good = 0 <= numbers[2] && numbers[2] <= numbers[1] && numbers[1] <= numbers[0];
  if (!good) {
    return Status(Code::kInvalidArgument,
                  format("training state: %lld steps, %lld updates, %lld of the optimizer "
                         "(expected none below 0 and none above the one before it)",
                         static_cast<long long>(numbers[0]), static_cast<long long>(numbers[1]),
                         static_cast<long long>(numbers[2])));
  }
  if (options_.loss_scale.active()) {
    GW_TRY(scaler_.load(elements<double>(
        ConstTensorView(saved_scale_.tensor(Shape::vector(LossScaler::kStateSize), DType::kF64)))));
  }
  position_ = {numbers[0], numbers[1]};
  if (optimizer_) optimizer_->set_steps(numbers[2]);
  return {};
}

Result<double> Trainer::run(GradientHook& hook, const OnStep& on_step) {
  if (hook.optimizer() == nullptr && optimizer_ == nullptr) {
    return Status(Code::kInvalidArgument, "optimizer 'hook' needs a hook that has an optimizer");
  }
  if (options_.gated_parameters != (hook.gate() != nullptr)) {
    return Status(
        Code::kInvalidArgument,
        "parameters gathered layer by layer need a hook that gathers them, and only then");
  }
  fresh_ = false;
  options_.places.device.restart_peaks();
  options_.places.host.restart_peaks();
  GW_ASSIGN(own_gate_, own_gate(hook));
  gate_ = own_gate_ ? own_gate_.get() : hook.gate();
  std::optional<double> accuracy;
  while (position_.steps < total_steps_) {
    GW_ASSIGN(StepReport report, step(hook));
    const bool last = position_.steps == total_steps_;
    if (last && hook.optimizer() != nullptr) {
      GW_TRY(hook.optimizer()->settle(master()));
      fresh_ = false;
    }
    if (last || (options_.eval_every > 0 && position_.steps % options_.eval_every == 0)) {
      GW_TRY(averages_.settle(hook, pass_, options_.ranks));
      report_losses(report);
      GW_ASSIGN(accuracy, evaluate(hook));
      report.accuracy = accuracy;
      report.test_loss = test_loss_;
    }
    if (on_step) GW_TRY(on_step(report));
  }
  if (accuracy) return *accuracy;
  return evaluate(hook);
}

void Trainer::tell(const OnTrainerSpan* told) {
  told_ = told;
  pass_.tell(told);
}

Result<double> Trainer::evaluate(GradientHook& hook) {
  const TimedSpan span(told_, TrainerSpan::Kind::kEvaluate, position_.steps);
  const auto samples = static_cast<std::int64_t>(data_->evaluation().size());
  const std::int64_t begin = samples * options_.rank / options_.ranks;
  const std::int64_t end = samples * (options_.rank + 1) / options_.ranks;
  GW_TRY(refresh());
  GW_ASSIGN(const std::unique_ptr<LayerGate> own, own_gate(hook));
  const std::int64_t most = (samples + options_.ranks - 1) / options_.ranks;
  GW_ASSIGN(const Judgement mine, pass_.judge(computed_, begin, end, own ? own.get() : hook.gate(),
                                              pass_.passes_of(most)));
  std::array<double, 2> means{static_cast<double>(mine.correct), mine.loss};
  GW_TRY(hook.average(means));
  const auto labels =
      static_cast<double>(std::max<std::int64_t>(samples * data_->labels_per_sample(), 1));
  test_loss_ = means[1] * options_.ranks / labels;
  // Counts are whole numbers: rounding undoes the mean's rounding.
  return static_cast<double>(std::llround(means[0] * options_.ranks)) / labels;
}

}  // namespace gradwire
