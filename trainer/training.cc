#include "trainer/training.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <utility>

#include "base/elements.h"
#include "base/hash.h"
#include "base/mesh.h"
#include "base/text.h"
#include "device/host_copy.h"
#include "trainer/step/micro_batch_source.h"

namespace gradwire {
namespace {

constexpr std::int64_t kPositionSize = 3;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Others read the model between steps, and may write to it: the replicas' comparison, checkpoints,
// a program's own code. Their copies are behind CUDA's default stream, which a stream of the
// trainer's own may not hold back. So that one has run what it was given before they do.
Status let_others_read(const MemoryArena& arena) {
  return arena.stream().native == nullptr ? Status() : wait_for(arena.stream());
}

}  // namespace

Trainer::Trainer(const Model<float>& model, const DataSet& data, const TrainingOptions& options,
                 const Demands& demands)
    : model_(&model),
      data_(&data),
      options_(options),
      demands_(demands),
      steps_per_epoch_(data.epoch_samples() / options.batch),
      total_steps_(options.steps.value_or(options.epochs * steps_per_epoch_)) {}

Result<Trainer> Trainer::create(const Model<float>& model, const DataSet& data,
                                const TrainingOptions& options, const Demands& demands,
                                const SourceChoice& source) {
  GW_TRY(check_training_options(options, demands, data));
  Trainer trainer(model, data, options, demands);
  GW_ASSIGN(trainer.scaler_, LossScaler::create(options.loss_scale));
  GW_TRY(trainer.allocate(source));
  if (options.draws) GW_TRY(trainer.parameters_->draw(options.seed));
  return trainer;
}

// All memory of a run: the loop allocates nothing.
Status Trainer::allocate(const SourceChoice& source) {
  GW_ASSIGN(parameters_, ParameterStore::create(*model_, options_, demands_));
  GW_ASSIGN(GradientFold fold,
            GradientFold::create(model_->gradients(), options_, demands_, source.at_a_time));
  fold_ = std::make_unique<GradientFold>(std::move(fold));
  const SourceParts parts{*model_, *data_, options_, *parameters_, *fold_};
  GW_ASSIGN(source_, source.make ? source.make(parts) : MicroBatchSource::create(parts));
  GW_ASSIGN(update_, Update::create(*model_, options_, demands_, *parameters_, *fold_));
  GW_ASSIGN(saved_position_, Buffer::allocate(kPositionSize * sizeof(std::int64_t)));
  GW_ASSIGN(saved_scale_, Buffer::allocate(LossScaler::kStateSize * sizeof(double)));
  return {};
}

std::vector<LayerTensors> Trainer::openings(Way way) const {
  std::vector<LayerTensors> all;
  for (const std::size_t layer : source_->openings(way)) {
    const auto [first, end] = model_->parameters_read_by(layer);
    all.push_back({layer, first, end});
  }
  return all;
}

TrainerMemory Trainer::memory() {
  auto first = [store = parameters_.get()](int index, std::span<float> values) {
    store->first_values(index, values);
  };
  return {model_->parameters(), parameters_->paged(),     fold_->handed_over(),
          options_.places,      openings(Way::kForward),  openings(Way::kBack),
          std::move(first),     fold_->hands_each_over(), options_.share};
}

std::vector<NamedTensor> Trainer::parameters() {
  parameters_->master_changed();  // they may be written to
  return parameters_->paged().named();
}

Status Trainer::start_from(std::vector<float> values) {
  return parameters_->start_from(std::move(values));
}

std::vector<NamedTensor> Trainer::gradients() { return fold_->handed_over().tensors; }

Result<std::uint64_t> Trainer::parameter_hash() const { return parameters_->hash(); }

std::vector<NamedTensor> Trainer::state() {
  std::vector<NamedTensor> tensors;
  Optimizer* const optimizer = update_->optimizer();
  if (optimizer != nullptr) tensors = optimizer->state();
  for (NamedTensor& momentum : fold_->state()) tensors.push_back(std::move(momentum));
  const TensorView position = saved_position_.tensor(Shape::vector(kPositionSize), DType::kI64);
  const auto numbers = elements<std::int64_t>(position);
  numbers[0] = position_.steps;
  numbers[1] = position_.updates;
  numbers[2] = optimizer != nullptr ? optimizer->steps() : 0;
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
  if (update_->optimizer() != nullptr) update_->optimizer()->set_steps(numbers[2]);
  return {};
}

Result<double> Trainer::run(Strategy& strategy, const OnStep& on_step) {
  GW_TRY(check_demands(demands_, strategy.demands()).with_context("training"));
  update_->work_with(strategy);
  parameters_->forget();
  parameters_->master_changed();
  options_.places.device.restart_peaks();
  options_.places.host.restart_peaks();
  GW_ASSIGN(gate_, parameters_->gate(strategy.keeper()));
  source_->read_through(gate_.use);
  std::optional<double> accuracy;
  while (position_.steps < total_steps_) {
    GW_ASSIGN(StepReport report, step(strategy));
    const bool last = position_.steps == total_steps_;
    if (last) {
      GW_TRY(update_->settle());
      GW_TRY(let_others_read(options_.places.device));
    }
    if (last || (options_.eval_every > 0 && position_.steps % options_.eval_every == 0)) {
      GW_TRY(averages_.settle(strategy, source_->running()));
      report_losses(report);
      GW_ASSIGN(accuracy, evaluate(strategy));
      report.accuracy = accuracy;
      report.test_loss = test_loss_;
    }
    if (on_step) GW_TRY(on_step(report));
  }
  if (accuracy) return *accuracy;
  return evaluate(strategy);
}

void Trainer::tell(const OnTrainerSpan* told) {
  told_ = told;
  source_->tell(told);
  update_->tell(told);
}

// All ranks learn whether one of them has a gradient that is not finite. Returns whether the step
// is left out; `last`: it is not asked again.
Result<bool> Trainer::skips(Strategy& strategy, StepReport& report, bool finite, bool last) {
  const auto start = Clock::now();
  GW_ASSIGN(const bool skip, strategy.consensus().any(!finite, Scope::kWorld));
  report.exchange_seconds += seconds_since(start);
  if (skip || last) scaler_.update(skip);
  if (skip) strategy.exchange().skip_step();
  return skip;
}

// Whole gradients are handed over here, and ranks meet where each micro-batch is.
Status Trainer::micro_batch_over(Strategy& strategy, StepReport& report, int complete) {
  const bool each = fold_->hands_each_over();
  const bool last = complete == options_.accumulate;
  if (report.skipped || !(each || last)) return {};
  if (fold_->needs_whole()) {
    if (options_.loss_scale.active()) {  // before anything that outlives the step has seen them
      GW_ASSIGN(const bool finite, fold_->finite());
      GW_ASSIGN(report.skipped, skips(strategy, report, finite, last));
      if (report.skipped) return {};
    }
    if (!each || complete == 1) GW_TRY(update_->begin(report.lr));
    GW_TRY(update_->give_all());
  }
  return last ? Status() : update_->end_round();
}

Status Trainer::compute_and_update(Strategy& strategy, StepReport& report) {
  GW_ASSIGN(const std::int64_t left, early_.steps_left(averages_, strategy.consensus(),
                                                       steps_left(), source_->steps_to_drain()));
  report.late_losses = averages_.take_late();
  fold_->begin_step();
  update_->start(report.step, scaler_.scale());
  if (!fold_->needs_whole()) GW_TRY(update_->begin(report.lr));
  auto ready = [this](int index, int unread) { return update_->give(index, unread); };
  auto over = [&](int complete) { return micro_batch_over(strategy, report, complete); };
  const double waited = source_->waited_seconds();
  GW_ASSIGN(report.loss, source_->run({report.step, report.epoch, scaler_.scale(), left},
                                      std::ref(ready), std::ref(over)));
  report.stage_wait_seconds = source_->waited_seconds() - waited;
  // What is exchanged before anybody has looked at it is looked at afterwards.
  const bool looks = options_.loss_scale.active() && !fold_->needs_whole();
  if (looks) {
    GW_TRY(update_->await_exchange());
    GW_ASSIGN(const bool finite, update_->finite());
    GW_ASSIGN(report.skipped, skips(strategy, report, finite, true));
  }
  const auto start = Clock::now();
  GW_TRY(averages_.begin(strategy, source_->running(), report.loss, report.skipped,
                         !source_->is_under_way()));
  report.exchange_seconds += seconds_since(start);
  if (report.skipped) return {};
  if (!looks) GW_TRY(update_->await_exchange());
  GW_ASSIGN(const double length, update_->finish());
  if (options_.clip > 0) report.gradient_norm = length;
  ++position_.updates;
  return {};
}

// Until the next step behind which all of the model is looked at.
std::int64_t Trainer::steps_left() const {
  std::int64_t left = total_steps_ - position_.steps;
  for (const std::int64_t every : {options_.eval_every, options_.drain_every}) {
    if (every > 0) left = std::min(left, every - position_.steps % every);
  }
  return left;
}

Result<StepReport> Trainer::step(Strategy& strategy) {
  const auto start = Clock::now();
  StepReport report;
  report.step = position_.steps;
  const TimedSpan whole(told_, TrainerSpan::Kind::kStep, report.step);
  report.epoch = report.step / steps_per_epoch_;
  report.lr = options_.schedule.at(options_.lr, position_.updates, total_steps_);
  if (options_.loss_scale.active()) report.loss_scale = scaler_.scale();
  GW_TRY(parameters_->refresh());
  const Status made = compute_and_update(strategy, report);
  if (!made.ok()) {
    update_->stop();
    return made;
  }
  ++position_.steps;
  report.exchange_seconds += update_->exchange_seconds() + report.stage_wait_seconds;
  report.compute_seconds = seconds_since(start) - report.exchange_seconds;
  const TimedSpan last(told_, TrainerSpan::Kind::kAverage, report.step);
  GW_TRY(averages_.end(strategy, source_->running()));
  GW_TRY(let_others_read(options_.places.device));
  report_losses(report);
  return report;
}

void Trainer::report_losses(StepReport& report) const {
  report.averaged = averages_.averaged();
  const std::span<const double> losses = averages_.losses();
  report.loss = losses.back();
  if (report.averaged) report.earlier_losses.assign(losses.begin(), losses.end() - 1);
}

Result<double> Trainer::evaluate(Strategy& strategy) {
  const std::int64_t step = std::max<std::int64_t>(position_.steps - 1, 0);
  { const TimedSpan begins(told_, TrainerSpan::Kind::kEvaluationBegins, step); }
  const TimedSpan span(told_, TrainerSpan::Kind::kEvaluate, step);
  const auto samples = static_cast<std::int64_t>(data_->evaluation().size());
  const Range share = even_part(samples, options_.ranks, options_.rank);
  GW_TRY(parameters_->refresh());
  GW_ASSIGN(const ParameterStore::Gate gate, parameters_->gate(strategy.keeper()));
  GW_ASSIGN(const Judgement mine,
            source_->judge(share, longest_part(samples, options_.ranks), gate.use));
  // Each label counts on one rank; sums of whole numbers are exact.
  std::array<double, 2> sums{static_cast<double>(mine.correct), mine.loss};
  GW_TRY(strategy.consensus().sum(sums, Scope::kWorld));
  const auto labels =
      static_cast<double>(std::max<std::int64_t>(data_->labels_of(data_->evaluation()), 1));
  test_loss_ = sums[1] / labels;
  return sums[0] / labels;
}

}  // namespace gradwire
