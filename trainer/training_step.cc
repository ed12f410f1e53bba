// One step of a Trainer: micro-batches, gradients to the hook and back, the optimizer.
#include <chrono>
#include <functional>

#include "trainer/training.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

// Parameter `index` has its gradient of the step: the hook's now.
Status Trainer::give(int index, GradientHook& hook, double& hook_seconds) {
  const auto start = Clock::now();
  const ParameterInfo& info = model_->parameters()[static_cast<std::size_t>(index)];
  const TensorView view(reinterpret_cast<std::byte*>(fold_.gradient(index).data()), info.shape,
                        DType::kF32);
  const Status given = hook.on_gradient(index, view, {});
  hook_seconds += seconds_since(start);
  if (fold_.keeps_sums() || !given.ok()) return given;
  in_flight_ += static_cast<std::int64_t>(fold_.gradient(index).size_bytes());
  return put_away_given(hook, hook_seconds);
}

// Where too many gradients wait for the hook, so does this.
Result<bool> Trainer::has_arrived(GradientHook& hook, double& hook_seconds) {
  if (in_flight_ <= options_.gradients_in_flight) return hook.arrived(next_away_, false);
  const TimedSpan span(told_, TrainerSpan::Kind::kWait, position_.steps);
  const auto start = Clock::now();
  Result<bool> there = hook.arrived(next_away_, true);
  hook_seconds += seconds_since(start);
  return there;
}

// Gradients that the hook is done with become 16 bits, in the order in which they were given.
Status Trainer::put_away_given(GradientHook& hook, double& hook_seconds) {
  while (in_flight_ > 0) {
    GW_ASSIGN(const bool there, has_arrived(hook, hook_seconds));
    if (!there) return {};
    put_away_next();
  }
  return {};
}

void Trainer::put_away_next() {
  in_flight_ -= static_cast<std::int64_t>(fold_.gradient(next_away_).size_bytes());
  fold_.put_away(next_away_--);
}

// Forward and backward of one micro-batch; returns its mean loss. With the last one gradients go to
// the hook as they become final, unless a whole gradient must be looked at first.
Result<double> Trainer::micro_step(const MicroBatch& batch, int micro, GradientHook& hook,
                                   double& hook_seconds) {
  const bool last = micro + 1 == options_.accumulate;
  auto ready = [&](int index) {
    GW_TRY(fold_.ready(index, micro));
    return last && !fold_.needs_whole() ? give(index, hook, hook_seconds) : Status();
  };
  // One reference to capture: std::function then needs no memory of its own.
  GW_ASSIGN(const double loss,
            pass_.run(computed_, batch, fold_.fresh(micro), std::ref(ready), gate_));
  GW_TRY(fold_.micro_batch_done(micro, scaler_.scale()));
  return loss;
}

// After backward: all ranks learn whether one of them has a gradient that is not finite, before
// anything that outlives the step has seen it. Returns whether the step is left out.
Result<bool> Trainer::give_whole(GradientHook& hook, StepReport& report) {
  if (options_.loss_scale.active()) {
    const auto start = Clock::now();
    GW_ASSIGN(const bool skip, hook.skip_step(!fold_.finite()));
    report.hook_seconds += seconds_since(start);
    scaler_.update(skip);
    if (skip) return true;
  }
  GW_TRY(hook.before_step(report.lr));
  for (auto index = static_cast<int>(model_->parameters().size()); index-- > 0;) {
    if (!fold_.keeps_sums()) fold_.bring(index);
    GW_TRY(give(index, hook, report.hook_seconds));
  }
  return false;
}

// The hook's last word, clipping, and the optimizer's step.
Status Trainer::update(GradientHook& hook, StepReport& report) {
  const auto wait = Clock::now();
  {
    const TimedSpan span(told_, TrainerSpan::Kind::kWait, report.step);
    GW_TRY(hook.before_optimizer_step({}));
  }
  report.hook_seconds += seconds_since(wait);
  while (in_flight_ > 0) put_away_next();
  if (options_.clip > 0) {
    GW_ASSIGN(report.gradient_norm, clip(hook));
  }
  const TimedSpan span(told_, TrainerSpan::Kind::kOptimizer, report.step);
  if (hook.optimizer() == nullptr && chunked_) {
    GW_TRY(step_by_chunks(report.lr));
  } else {
    Optimizer& optimizer = hook.optimizer() != nullptr ? *hook.optimizer() : *optimizer_;
    GW_TRY(optimizer.step(master(), fold_.gradients(), report.lr));
    fresh_ = false;
  }
  ++position_.updates;
  return {};
}

// What is stored in 16 bits is shortened where it is read.
Result<double> Trainer::clip(GradientHook& hook) {
  if (fold_.keeps_sums()) return hook.clip_gradients(fold_.gradients(), options_.clip);
  const double length = fold_.stored().norm();
  fold_.stored().shorten(length, options_.clip);
  return length;
}

Status Trainer::step_by_chunks(double lr) {
  ChunkedStep::Source source = ChunkedStep::from(fold_.gradients());
  if (!fold_.keeps_sums()) {
    source = {
        [this](std::size_t first, std::span<float> part) { fold_.stored().read(first, part); },
        sizeof(std::uint16_t)};
  }
  return chunked_->run(*optimizer_, master(), source, lr,
                       [this](std::size_t first, std::span<const float> part) {
                         compute_.store(part, first);
                         return Status();
                       });
}

Result<StepReport> Trainer::step(GradientHook& hook) {
  const auto start = Clock::now();
  StepReport report;
  report.step = position_.steps;
  const TimedSpan whole(told_, TrainerSpan::Kind::kStep, report.step);
  report.epoch = report.step / steps_per_epoch_;
  report.lr = options_.schedule.at(options_.lr, position_.updates, total_steps_);
  if (options_.loss_scale.active()) report.loss_scale = scaler_.scale();
  const std::span<const std::uint32_t> order = order_.epoch(report.epoch);
  const int workers = options_.ranks * options_.accumulate;
  refresh();
  fold_.begin_step(scaler_.scale());
  next_away_ = static_cast<int>(model_->parameters().size()) - 1;
  in_flight_ = 0;
  if (!fold_.needs_whole()) GW_TRY(hook.before_step(report.lr));
  double loss = 0;
  for (int micro = 0; micro < options_.accumulate; ++micro) {
    const int worker = options_.rank * options_.accumulate + micro;
    const MicroBatch batch{
        micro_batch(order, options_.batch, report.step % steps_per_epoch_, worker, workers),
        scaler_.scale(),
        {PassMode::kTrain, options_.seed, static_cast<std::uint64_t>(report.step),
         options_.batch / workers * worker}};
    GW_ASSIGN(const double mean, micro_step(batch, micro, hook, report.hook_seconds));
    loss += mean;
  }
  if (fold_.needs_whole()) {
    GW_ASSIGN(report.skipped, give_whole(hook, report));
  }
  if (!report.skipped) GW_TRY(update(hook, report));
  ++position_.steps;
  report.compute_seconds = seconds_since(start) - report.hook_seconds;
  report.loss = loss / options_.accumulate;
  const TimedSpan last(told_, TrainerSpan::Kind::kAverage, report.step);
  GW_TRY(hook.average({&report.loss, 1}));
  GW_TRY(commit_statistics(hook, report.skipped));
  return report;
}

// Running statistics of all ranks' micro-batches. What did not fit into 16 bits would spoil them.
Status Trainer::commit_statistics(GradientHook& hook, bool skipped) {
  if (skipped) pass_.discard_statistics();
  if (skipped || pass_.statistics().empty()) return {};
  GW_TRY(hook.average(pass_.statistics()));
  pass_.commit(options_.ranks);
  return {};
}

}  // namespace gradwire
