#include "trainer/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/elements.h"
#include "base/hash.h"
#include "base/text.h"
#include "device/ops.h"
#include "trainer/sgd.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status bad(const char* what, long long seen, const char* wanted) {
  return Status(Code::kInvalidArgument, format("%s %lld; %s wanted", what, seen, wanted));
}

Status check_batch(const TrainingOptions& options, const DataSet& data) {
  const std::int64_t workers = static_cast<std::int64_t>(options.ranks) * options.accumulate;
  if (options.batch < 1 || options.batch % workers != 0) {
    return Status(Code::kInvalidArgument,
                  format("batch %lld; a positive multiple of %lld (%d ranks x %d micro-batches) "
                         "wanted",
                         static_cast<long long>(options.batch), static_cast<long long>(workers),
                         options.ranks, options.accumulate));
  }
  if (options.batch > data.train().count() && options.steps.value_or(1) > 0) {
    return Status(Code::kInvalidArgument,
                  format("batch %lld; at most %lld, the samples of %s, wanted",
                         static_cast<long long>(options.batch),
                         static_cast<long long>(data.train().count()), data.name().c_str()));
  }
  return {};
}

Status check_options(const TrainingOptions& options, const DataSet& data) {
  if (options.ranks < 1) return bad("ranks", options.ranks, "at least 1");
  if (options.rank < 0 || options.rank >= options.ranks) {
    return bad("rank", options.rank, format("0 to %d", options.ranks - 1).c_str());
  }
  if (options.accumulate < 1) return bad("accumulate", options.accumulate, "at least 1");
  if (options.steps.value_or(0) < 0) return bad("steps", *options.steps, "at least 0");
  if (options.epochs < 0) return bad("epochs", options.epochs, "at least 0");
  if (options.eval_every < 0) return bad("eval-every", options.eval_every, "at least 0");
  if (!(options.lr >= 0) || !std::isfinite(options.lr)) {
    return Status(Code::kInvalidArgument, format("lr %g; a finite number >= 0 wanted", options.lr));
  }
  if (!(options.momentum >= 0 && options.momentum < 1)) {
    return Status(Code::kInvalidArgument,
                  format("momentum %g; 0 <= momentum < 1 wanted", options.momentum));
  }
  return check_batch(options, data);
}

std::span<float> floats(Buffer& buffer) {
  const ByteSpan bytes = buffer.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace

Trainer::Trainer(const Model<float>& model, const DataSet& data, const TrainingOptions& options)
    : model_(&model),
      data_(&data),
      options_(options),
      steps_per_epoch_(data.train().count() / options.batch),
      total_steps_(options.steps.value_or(options.epochs * steps_per_epoch_)),
      order_(data.train().count(), options.seed, options.shuffle) {}

Result<Trainer> Trainer::create(const Model<float>& model, const DataSet& data,
                                const TrainingOptions& options) {
  GW_TRY(check_options(options, data));
  Trainer trainer(model, data, options);
  GW_ASSIGN(trainer.pass_,
            BatchPass::create(model, data, options.batch / options.ranks / options.accumulate));
  GW_TRY(trainer.allocate());
  init_parameters<float>(model.parameters(), options.seed, floats(trainer.params_));
  return trainer;
}

// All memory of a run: the loop allocates nothing.
Status Trainer::allocate() {
  const auto bytes =
      static_cast<std::size_t>(parameter_elems(model_->parameters())) * sizeof(float);
  const bool at_worker = options_.momentum > 0 && options_.momentum_at == MomentumAt::kWorker;
  const bool at_server = options_.momentum > 0 && options_.momentum_at == MomentumAt::kServer;
  GW_ASSIGN(params_, Buffer::allocate(bytes));
  GW_ASSIGN(grads_, Buffer::allocate(bytes));
  if (options_.accumulate > 1) {
    GW_ASSIGN(micro_grads_, Buffer::allocate(bytes));
  }
  if (at_server) {
    GW_ASSIGN(server_momentum_, Buffer::allocate(bytes));
  }
  for (int micro = 0; at_worker && micro < options_.accumulate; ++micro) {
    GW_ASSIGN(Buffer own, Buffer::allocate(bytes));
    momentum_.push_back(std::move(own));
  }
  return {};
}

std::vector<NamedTensor> Trainer::parameters() {
  return named_tensors(model_->parameters(), floats(params_));
}

std::vector<NamedTensor> Trainer::gradients() {
  return named_tensors(model_->parameters(), floats(grads_));
}

std::uint64_t Trainer::parameter_hash() const { return hash_bytes(params_.bytes()); }

std::span<float> Trainer::part(Buffer& buffer, int index) {
  const ParameterInfo& info = model_->parameters()[static_cast<std::size_t>(index)];
  return floats(buffer).subspan(static_cast<std::size_t>(info.offset),
                                static_cast<std::size_t>(info.shape.elems()));
}

// The gradient of parameter `index` from micro-batch `micro` is complete: momentum of that worker,
// the fold over the rank's micro-batches, and with the last of them the hook.
Status Trainer::gradient_ready(int index, int micro, GradientHook& hook, double& hook_seconds) {
  const std::span<float> grad = part(grads_, index);
  const std::span<float> fresh = micro == 0 ? grad : part(micro_grads_, index);
  if (!momentum_.empty()) {
    const std::span<float> own = part(momentum_[static_cast<std::size_t>(micro)], index);
    add_momentum(own, fresh, static_cast<float>(options_.momentum));
    std::copy(own.begin(), own.end(), fresh.begin());
  }
  if (micro > 0) {
    GW_TRY(reduce(ReduceOp::kSum, view_of<float>(fresh), view_of<float>(grad), {}));
  }
  if (micro + 1 < options_.accumulate) return {};
  if (options_.accumulate > 1) {
    GW_TRY(scale(view_of<float>(grad), 1.0 / options_.accumulate, {}));
  }
  const auto start = Clock::now();
  const ParameterInfo& info = model_->parameters()[static_cast<std::size_t>(index)];
  const TensorView view(reinterpret_cast<std::byte*>(grad.data()), info.shape, DType::kF32);
  const Status given = hook.on_gradient(index, view, {});
  hook_seconds += seconds_since(start);
  return given;
}

// Forward and backward of one micro-batch; returns its mean loss.
Result<double> Trainer::micro_step(std::span<const std::uint32_t> samples, int micro,
                                   GradientHook& hook, double& hook_seconds) {
  // One reference to capture: std::function then needs no memory of its own.
  auto ready = [&](int index) { return gradient_ready(index, micro, hook, hook_seconds); };
  return pass_.run(floats(params_), {samples}, floats(micro == 0 ? grads_ : micro_grads_),
                   std::ref(ready));
}

void Trainer::update(double lr) {
  const auto rate = static_cast<float>(lr);
  if (server_momentum_.bytes().empty()) return descend(floats(params_), floats(grads_), rate);
  descend_with_momentum(floats(params_), floats(server_momentum_), floats(grads_), rate,
                        static_cast<float>(options_.momentum));
}

Result<StepReport> Trainer::step(std::int64_t step, GradientHook& hook) {
  const auto start = Clock::now();
  StepReport report;
  report.step = step;
  report.epoch = step / steps_per_epoch_;
  report.lr = options_.schedule.at(options_.lr, step, total_steps_);
  const std::span<const std::uint32_t> order = order_.epoch(report.epoch);
  const int workers = options_.ranks * options_.accumulate;
  GW_TRY(hook.before_step(report.lr));
  double loss = 0;
  for (int micro = 0; micro < options_.accumulate; ++micro) {
    const int worker = options_.rank * options_.accumulate + micro;
    GW_ASSIGN(const double mean, micro_step(micro_batch(order, options_.batch,
                                                        step % steps_per_epoch_, worker, workers),
                                            micro, hook, report.hook_seconds));
    loss += mean;
  }
  const auto wait = Clock::now();
  GW_TRY(hook.before_optimizer_step({}));
  report.hook_seconds += seconds_since(wait);
  update(report.lr);
  report.compute_seconds = seconds_since(start) - report.hook_seconds;
  report.loss = loss / options_.accumulate;
  GW_TRY(hook.average({&report.loss, 1}));
  return report;
}

Result<double> Trainer::run(GradientHook& hook, const OnStep& on_step) {
  std::optional<double> accuracy;
  for (std::int64_t now = 0; now < total_steps_; ++now) {
    GW_ASSIGN(StepReport report, step(now, hook));
    const bool last = now + 1 == total_steps_;
    if (last || (options_.eval_every > 0 && (now + 1) % options_.eval_every == 0)) {
      GW_ASSIGN(accuracy, evaluate(hook));
      report.accuracy = accuracy;
    }
    if (on_step) GW_TRY(on_step(report));
  }
  if (accuracy) return *accuracy;
  return evaluate(hook);
}

Result<double> Trainer::evaluate(GradientHook& hook) {
  const Samples& test = data_->test();
  const std::int64_t end = test.count() * (options_.rank + 1) / options_.ranks;
  const std::int64_t begin = test.count() * options_.rank / options_.ranks;
  auto mean = static_cast<double>(pass_.count_correct(floats(params_), begin, end));
  GW_TRY(hook.average({&mean, 1}));
  // Counts are whole numbers: rounding undoes the mean's rounding.
  const auto total = static_cast<double>(std::llround(mean * options_.ranks));
  return total / static_cast<double>(std::max<std::int64_t>(test.count(), 1));
}

}  // namespace gradwire
