#include "trainer/step/update.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <vector>

namespace gradwire {
namespace {

// Adds its own life to a sum of seconds.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The trainer's own: momentum belongs to the workers where it is theirs.
OptimizerOptions own_optimizer(const TrainingOptions& options) {
  OptimizerOptions own = options.optimizer;
  own.momentum = options.momentum_at == MomentumAt::kServer ? options.momentum : 0;
  return own;
}

}  // namespace

Result<std::unique_ptr<Update>> Update::create(const Model<float>& model,
                                               const TrainingOptions& options,
                                               const Demands& demands, ParameterStore& parameters,
                                               GradientFold& fold) {
  std::unique_ptr<Update> made(new Update(model, options, demands, parameters, fold));
  const MemoryPlaces& places = options.places;
  const bool away = !demands.own_optimizer && options.offload != Offload::kNone;
  GW_ASSIGN(made->sums_, TensorSums::create(made->table_, options.share));
  if (!demands.own_optimizer) {
    SumOverShards over_model;
    if (!made->sums_.alone()) {
      over_model = [own = made.get()](std::span<double> sums) {
        return own->sums_.add_up(sums, sums.size() / own->table_.size(),
                                 own->strategy_->consensus(), Scope::kModel);
      };
    }
    GW_ASSIGN(made->optimizer_, make_optimizer(own_optimizer(options), whole_slices(made->table_),
                                               over_model, away ? places.host : places.device));
    const std::int64_t chunk = std::min(options.offload_chunk, parameter_elems(made->table_));
    GW_ASSIGN(made->gradients_, StepGradients::create(places.device, fold.outcome(),
                                                      {away ? &places.host : nullptr, chunk}));
    if (away || fold.hands_scaled()) GW_TRY(made->make_chunks(away));
  }
  return made;
}

Status Update::make_chunks(bool away) {
  const MemoryPlaces& places = options_.places;
  const std::int64_t elems = parameter_elems(table_);
  // A device's two passes want tensors whole.
  const bool whole = optimizer_->two_passes() && places.device.device().space == MemorySpace::kCuda;
  GW_ASSIGN(chunked_, ChunkedStep::create(away ? places.host : places.device,
                                          away ? MemoryClass::kOther : MemoryClass::kWorkspace,
                                          away ? places.link : nullptr,
                                          whole ? elems : options_.offload_chunk, elems));
  return {};
}

void Update::start(std::int64_t step, double loss_scale) {
  step_ = step;
  loss_scale_ = loss_scale;
  gradients_.begin_step(fold_.hands_scaled() ? loss_scale : 1);
  round_ = 0;
  exchange_seconds_ = 0;
  lane_works_ = false;
  expect_all();
}

void Update::expect_all() {
  next_arrival_ = static_cast<int>(table_.size()) - 1;
  in_flight_ = 0;
}

bool Update::overlaps() const {
  return optimizer_ != nullptr && options_.offload != Offload::kNone && options_.offload_overlap &&
         options_.clip == 0 && demands_.tells_arrival && !fold_.hands_each_over() &&
         (fold_.needs_whole() || !options_.loss_scale.active());
}

Status Update::begin(double learning_rate) {
  learning_rate_ = learning_rate;
  {
    const Stopwatch timed(exchange_seconds_);
    GradientExchange& exchange = strategy_->exchange();
    if (fold_.hands_scaled()) GW_TRY(exchange.set_gradient_scale(loss_scale_));
    GW_TRY(exchange.before_step(learning_rate));
  }
  lane_works_ = overlaps();
  if (!lane_works_) return {};
  GW_TRY(optimizer_->begin_step(learning_rate));
  if (!lane_) lane_ = std::make_unique<StepLane>();
  lane_->begin(parameters_.master().size(), chunked_->chunk(),
               [this](std::size_t first, std::size_t count) {
                 const TimedSpan span(told_, TrainerSpan::Kind::kUpdate, step_);
                 return chunked_->part(*optimizer_, parameters_.master(), gradient_source(), first,
                                       count, updated_parameters());
               });
  return {};
}

Status Update::give(int index, int unread) {
  unread_ = unread;
  {
    const Stopwatch timed(exchange_seconds_);
    GW_ASSIGN(const TensorView gradient, fold_.hand_over(index));
    GW_TRY(strategy_->exchange().on_gradient(index, gradient, fold_.stream()));
  }
  if (!lane_works_) return {};
  ++in_flight_;
  return take_arrived();
}

Status Update::give_all() {
  for (auto index = static_cast<int>(table_.size()); index-- > 0;) GW_TRY(give(index, 0));
  return {};
}

// Gradients that the exchange is done with become the lane's, in the order in which they were
// given.
Status Update::take_arrived() {
  for (; in_flight_ > 0; --in_flight_, --next_arrival_) {
    GW_ASSIGN(const bool there, strategy_->exchange().arrived(next_arrival_, false));
    if (!there) break;
  }
  release();
  return {};
}

// After backward: the lane goes on with what has arrived while the rest is on its way.
Status Update::take_all() {
  const TimedSpan span(told_, TrainerSpan::Kind::kWait, step_);
  const Stopwatch timed(exchange_seconds_);
  unread_ = 0;
  for (; lane_works_ && in_flight_ > 0; --in_flight_, --next_arrival_, release()) {
    GW_ASSIGN(const bool there, strategy_->exchange().arrived(next_arrival_, true));
    if (!there) break;
  }
  return strategy_->exchange().finish(fold_.stream());
}

// Parameters whose gradient has arrived, and which no layer reads any more, are the lane's.
void Update::release() {
  if (!lane_works_) return;
  const auto first = static_cast<std::size_t>(std::max(next_arrival_ + 1, unread_));
  if (first < table_.size()) lane_->release(static_cast<std::size_t>(table_[first].offset));
}

Status Update::end_round() {
  GW_TRY(take_all());
  expect_all();
  return fold_.add_up(round_++);
}

Result<bool> Update::finite() {
  return demands_.clips ? strategy_->keeper().finite() : gradients_.finite();
}

Result<double> Update::finish() {
  double length = 0;
  if (options_.clip > 0) {
    GW_ASSIGN(length, clip());
  }
  const TimedSpan span(told_, TrainerSpan::Kind::kOptimizer, step_);
  GW_TRY(step());
  return length;
}

Status Update::step() {
  if (lane_works_) return lane_->finish();
  if (optimizer_ != nullptr && chunked_) {
    return chunked_->run(*optimizer_, parameters_.master(), gradient_source(), learning_rate_,
                         updated_parameters());
  }
  parameters_.master_changed();
  if (optimizer_ == nullptr) return strategy_->keeper().step(learning_rate_);
  return optimizer_->step(parameters_.master(), fold_.gradients(), learning_rate_);
}

// By the norm of all of the model's gradient, of which other ranks may have the rest.
Result<double> Update::clip() {
  if (demands_.clips) return strategy_->keeper().clip(options_.clip);
  GW_ASSIGN(const std::vector<double> squares, gradients_.squares());
  double square = std::accumulate(squares.begin(), squares.end(), 0.0);
  if (!sums_.alone()) {
    GW_ASSIGN(square, sums_.total(squares, strategy_->consensus(), Scope::kModel));
  }
  const double length = std::sqrt(square);
  GW_TRY(gradients_.shorten(length, options_.clip));
  return length;
}

ChunkedStep::Source Update::gradient_source() {
  const bool away = options_.offload != Offload::kNone;
  return {[this, away](std::size_t first, std::span<float> part) {
            return away ? gradients_.read_to_host(first, part) : gradients_.read(first, part);
          },
          gradients_.width()};
}

ChunkedStep::Updated Update::updated_parameters() {
  return [this](std::size_t first, std::span<const float> part) {
    return parameters_.store(part, first);
  };
}

void Update::stop() {
  if (lane_) lane_->stop();
}

Status Update::settle() {
  if (optimizer_ != nullptr) return {};
  parameters_.master_changed();
  return strategy_->keeper().settle();
}

}  // namespace gradwire
