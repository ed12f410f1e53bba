// One step of a Trainer: micro-batches, gradients to the hook and back, the optimizer.
#include <algorithm>
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
                        DType::kF32, stream().device);
  const Status given = hook.on_gradient(index, view, stream());
  hook_seconds += seconds_since(start);
  if (!given.ok() || (fold_.keeps_sums() && !early_)) return given;
  in_flight_ += static_cast<std::int64_t>(fold_.gradient(index).size_bytes());
  return take_arrived(hook, hook_seconds);
}

// Where too many gradients that are to be stored wait for the hook, so does this.
Result<bool> Trainer::has_arrived(GradientHook& hook, double& hook_seconds) {
  const bool wait = !fold_.keeps_sums() && in_flight_ > options_.gradients_in_flight;
  if (!wait) return hook.arrived(next_arrival_, false);
  const TimedSpan span(told_, TrainerSpan::Kind::kWait, position_.steps);
  const auto start = Clock::now();
  Result<bool> there = hook.arrived(next_arrival_, true);
  hook_seconds += seconds_since(start);
  return there;
}

// Gradients that the hook is done with become 16 bits, or the lane's, in the order in which they
// were given.
Status Trainer::take_arrived(GradientHook& hook, double& hook_seconds) {
  while (in_flight_ > 0) {
    const Result<bool> there = has_arrived(hook, hook_seconds);
    if (!there.has_value()) {
      // Sums are there until the hook's last word; without them there would be no way.
      early_ = !fold_.keeps_sums() || there.error().code() != Code::kUnsupported;
      return early_ ? there.error() : Status();
    }
    if (!there.value()) break;
    GW_TRY(take_next());
  }
  release();
  return {};
}

// After backward: the lane goes on with what has arrived while the rest travels.
Status Trainer::take_all(GradientHook& hook) {
  last_read_ = 0;
  while (early_ && in_flight_ > 0) {
    GW_ASSIGN(const bool there, hook.arrived(next_arrival_, true));
    if (!there) break;
    GW_TRY(take_next());
    release();
  }
  GW_TRY(hook.before_optimizer_step(stream()));
  while (in_flight_ > 0) GW_TRY(take_next());
  return {};
}

Status Trainer::take_next() {
  in_flight_ -= static_cast<std::int64_t>(fold_.gradient(next_arrival_).size_bytes());
  if (!fold_.keeps_sums()) GW_TRY(fold_.put_away(next_arrival_));
  --next_arrival_;
  return {};
}

// Parameters whose gradient has arrived, and which no layer reads any more, are the lane's.
void Trainer::release() {
  if (!lane_works_) return;
  const auto first = static_cast<std::size_t>(std::max(next_arrival_ + 1, last_read_));
  if (first < model_->parameters().size()) {
    lane_->release(static_cast<std::size_t>(model_->parameters()[first].offset));
  }
}

bool Trainer::overlaps(GradientHook& hook) const {
  return options_.offload != Offload::kNone && options_.offload_overlap && chunked_ &&
         options_.clip == 0 && hook.optimizer() == nullptr;
}

// The step will be made: what it needs to know of all gradients is known.
Status Trainer::before_step(GradientHook& hook, StepReport& report) {
  const auto start = Clock::now();
  GW_TRY(hook.before_step(report.lr));
  report.hook_seconds += seconds_since(start);
  lane_works_ = early_ = overlaps(hook);
  if (!lane_works_) return {};
  GW_TRY(optimizer_->begin_step(report.lr));
  if (!lane_) lane_ = std::make_unique<StepLane>();
  lane_->begin(master().size(), chunked_->chunk(), [this](std::size_t first, std::size_t count) {
    const TimedSpan span(told_, TrainerSpan::Kind::kUpdate, position_.steps);
    return chunked_->part(*optimizer_, master(), gradient_source(), first, count,
                          updated_parameters());
  });
  return {};
}

// Forward and backward of one micro-batch; returns its mean loss. With the last one gradients go to
// the hook as they become final, unless a whole gradient must be looked at first.
Result<double> Trainer::micro_step(const MicroBatch& batch, int micro, GradientHook& hook,
                                   double& hook_seconds) {
  const bool last = micro + 1 == options_.accumulate;
  auto ready = [&](int index) {
    GW_TRY(fold_.ready(index, micro));
    last_read_ = layer_ends_[static_cast<std::size_t>(index)];
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
    GW_ASSIGN(const bool finite, fold_.finite());
    GW_ASSIGN(const bool skip, hook.skip_step(!finite));
    report.hook_seconds += seconds_since(start);
    scaler_.update(skip);
    if (skip) return true;
  }
  GW_TRY(before_step(hook, report));
  last_read_ = 0;
  for (auto index = static_cast<int>(model_->parameters().size()); index-- > 0;) {
    if (!fold_.keeps_sums()) GW_TRY(fold_.bring(index));
    GW_TRY(give(index, hook, report.hook_seconds));
  }
  return false;
}

// The hook's last word, clipping, and the optimizer's step.
Status Trainer::update(GradientHook& hook, StepReport& report) {
  const auto wait = Clock::now();
  {
    const TimedSpan span(told_, TrainerSpan::Kind::kWait, report.step);
    GW_TRY(take_all(hook));
  }
  report.hook_seconds += seconds_since(wait);
  if (options_.clip > 0) {
    GW_ASSIGN(report.gradient_norm, clip(hook));
  }
  const TimedSpan span(told_, TrainerSpan::Kind::kOptimizer, report.step);
  if (lane_works_) {
    GW_TRY(lane_->finish());
  } else if (hook.optimizer() == nullptr && chunked_) {
    GW_TRY(
        chunked_->run(*optimizer_, master(), gradient_source(), report.lr, updated_parameters()));
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
  if (fold_.keeps_sums()) {
    if (there() && !options_.hook_clips) return fold_.clip_there(options_.clip);
    return hook.clip_gradients(fold_.gradients(), options_.clip);
  }
  GW_ASSIGN(const double length, fold_.stored().norm());
  fold_.stored().shorten(length, options_.clip);
  return length;
}

ChunkedStep::Source Trainer::gradient_source() {
  if (fold_.keeps_sums()) return ChunkedStep::from(fold_.gradients(), options_.places.device);
  return {
      [this](std::size_t first, std::span<float> part) { return fold_.stored().read(first, part); },
      sizeof(std::uint16_t)};
}

ChunkedStep::Updated Trainer::updated_parameters() {
  return [this](std::size_t first, std::span<const float> part) {
    return compute_.store(part, first);
  };
}

// All micro-batches, and gradients to the hook.
Status Trainer::compute(GradientHook& hook, StepReport& report) {
  const std::span<const std::uint32_t> order = order_.epoch(report.epoch);
  const int workers = options_.ranks * options_.accumulate;
  fold_.begin_step(scaler_.scale());
  next_arrival_ = static_cast<int>(model_->parameters().size()) - 1;
  in_flight_ = 0;
  lane_works_ = early_ = false;
  if (!fold_.needs_whole()) GW_TRY(before_step(hook, report));
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
  report.loss = loss / options_.accumulate;
  if (fold_.needs_whole()) {
    GW_ASSIGN(report.skipped, give_whole(hook, report));
  }
  return {};
}

Status Trainer::compute_and_update(GradientHook& hook, StepReport& report) {
  GW_TRY(compute(hook, report));
  const auto start = Clock::now();
  GW_TRY(averages_.begin(hook, pass_, report.loss, report.skipped));
  report.hook_seconds += seconds_since(start);
  return report.skipped ? Status() : update(hook, report);
}

Result<StepReport> Trainer::step(GradientHook& hook) {
  const auto start = Clock::now();
  StepReport report;
  report.step = position_.steps;
  const TimedSpan whole(told_, TrainerSpan::Kind::kStep, report.step);
  report.epoch = report.step / steps_per_epoch_;
  report.lr = options_.schedule.at(options_.lr, position_.updates, total_steps_);
  if (options_.loss_scale.active()) report.loss_scale = scaler_.scale();
  GW_TRY(refresh());
  const Status made = compute_and_update(hook, report);
  if (!made.ok()) {
    if (lane_) lane_->stop();
    return made;
  }
  ++position_.steps;
  report.compute_seconds = seconds_since(start) - report.hook_seconds;
  const TimedSpan last(told_, TrainerSpan::Kind::kAverage, report.step);
  GW_TRY(averages_.end(hook, pass_, options_.ranks));
  report_losses(report);
  return report;
}

void Trainer::report_losses(StepReport& report) const {
  report.averaged = averages_.averaged();
  const std::span<const double> losses = averages_.losses();
  report.loss = losses.back();
  if (report.averaged) report.earlier_losses.assign(losses.begin(), losses.end() - 1);
}

}  // namespace gradwire
