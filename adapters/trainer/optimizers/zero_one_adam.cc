#include "adapters/trainer/optimizers/zero_one_adam.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "adapters/trainer/optimizers/onebit_adam.h"
#include "base/text.h"
#include "trainer/optimizers/adamw.h"

namespace gradwire {

Result<std::unique_ptr<Method>> ZeroOneAdam::create(Parts parts) {
  std::unique_ptr<ZeroOneAdam> own(new ZeroOneAdam(std::move(parts)));
  GW_ASSIGN(own->moments_,
            FlatState::allocate(own->slices(), {"exp_avg", "exp_avg_sq"}, own->options().memory));
  GW_ASSIGN(own->alone_,
            FlatState::allocate(own->slices(), {"unsent", "last"}, own->options().memory));
  own->counters_.resize(kEnd, 0);
  own->counters_[kVarianceEvery] = 1;
  own->counters_[kLocalEvery] = 1;
  const std::string spec =
      own->options().compressor.empty() ? std::string(kOneBit) : own->options().compressor;
  GW_ASSIGN(own->signs_, own->open_exchange("signs", spec));
  GW_ASSIGN(own->updates_, own->open_exchange("updates", spec));
  return std::unique_ptr<Method>(std::move(own));
}

ZeroOneAdam::Phase ZeroOneAdam::phase() const {
  if (!frozen()) {
    return (steps() + 1) % counters_[kVarianceEvery] == 0 ? Phase::kLearn : Phase::kFollow;
  }
  return since_ + 1 >= counters_[kLocalEvery] ? Phase::kMeet : Phase::kAlone;
}

Status ZeroOneAdam::before_step(double learning_rate) {
  rate_ = static_cast<float>(learning_rate);
  return phase() == Phase::kLearn ? exact().exchange().before_step(learning_rate) : Status();
}

Status ZeroOneAdam::on_gradient(int index, TensorView grad, const Stream& stream) {
  const Phase now = phase();
  if (now == Phase::kLearn) return exact().exchange().on_gradient(index, grad, stream);
  if (now == Phase::kFollow) return signs_->ready(index, stream);
  const AdamFactors f(options().optimizer, steps());
  const std::span<float> g = gradient(index);
  const std::span<float> m = part(moments_[0], index);
  const std::span<const float> v = part(moments_[1], index);
  const std::span<float> u = part(alone_[0], index);
  for (std::size_t i = 0; i < g.size(); ++i) {
    m[i] = v[i] == 0 ? 0.0F : f.beta1 * m[i] + f.rest1 * g[i];
    u[i] += rate_ * m[i];
  }
  if (now == Phase::kAlone) return {};
  std::copy(u.begin(), u.end(), g.begin());
  return updates_->ready(index, stream);
}

Status ZeroOneAdam::finish(const Stream& stream) {
  switch (phase()) {
    case Phase::kLearn: return exact().exchange().finish(stream);
    case Phase::kFollow: GW_TRY(signs_->finish(stream)); break;
    case Phase::kMeet: GW_TRY(updates_->finish(stream)); break;
    case Phase::kAlone: return {};
  }
  // What the step before left is equal on all ranks unless they have stepped alone since.
  return since_ == 0 ? exact().count_step() : Status();
}

// The gradients are the mean over ranks, dense or compressed.
void ZeroOneAdam::step_together(std::span<float> x, std::span<const float> g, double lr,
                                bool learn) {
  const AdamFactors f(options().optimizer, steps());
  const auto rate = static_cast<float>(lr);
  const float most = adam_bound(options().optimizer);
  for (int t = 0; t < tensors(); ++t) {
    const float decay = rate * decay_of(t);
    const std::span<float> own = part(x, t);
    const std::span<const float> got = part(g, t);
    const std::span<float> m = part(moments_[0], t);
    const std::span<float> v = part(moments_[1], t);
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (learn) v[i] = f.beta2 * v[i] + f.rest2 * (got[i] * got[i]);
      m[i] = v[i] == 0 ? 0.0F : f.beta1 * m[i] + f.rest1 * got[i];
      const float direction = std::clamp(m[i] / (std::sqrt(v[i]) + f.epsilon), -most, most);
      own[i] -= rate * direction + decay * own[i];
    }
  }
}

void ZeroOneAdam::step_alone(std::span<float> x) {
  const auto epsilon = static_cast<float>(options().optimizer.epsilon);
  const std::span<const float> m = moments_[0];
  const std::span<const float> v = moments_[1];
  const float most = adam_bound(options().optimizer);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] -= rate_ * std::clamp(m[i] / (std::sqrt(v[i]) + epsilon), -most, most);
  }
}

// The gradients' memory holds the mean of all ranks' u.
void ZeroOneAdam::step_met(std::span<float> x) {
  const auto epsilon = static_cast<float>(options().optimizer.epsilon);
  const auto sum = static_cast<float>(rates_);
  const float most = sum * adam_bound(options().optimizer);
  for (int t = 0; t < tensors(); ++t) {
    const float decay = sum * decay_of(t);
    const std::span<float> own = part(x, t);
    const std::span<const float> u = gradient(t);
    const std::span<float> m = part(moments_[0], t);
    const std::span<const float> v = part(moments_[1], t);
    const std::span<float> last = part(alone_[1], t);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const float update = v[i] == 0 ? 0.0F : u[i];
      if (sum > 0) m[i] = update / sum;
      const float way = std::clamp(update / (std::sqrt(v[i]) + epsilon), -most, most);
      last[i] -= way + decay * last[i];
      own[i] = last[i];
    }
  }
  const std::span<float> unsent = alone_[0];
  std::fill(unsent.begin(), unsent.end(), 0.0F);
}

void ZeroOneAdam::count(Phase done) {
  set_steps(steps() + 1);
  if (done == Phase::kLearn) {
    if (++counters_[kVarianceUpdates] % options().variance_doubles == 0) {
      counters_[kVarianceEvery] *= 2;
    }
  }
  if (done == Phase::kMeet) {
    since_ = 0;
    rates_ = 0;
    if (++counters_[kMeetings] % options().local_doubles == 0) {
      counters_[kLocalEvery] = std::min(2 * counters_[kLocalEvery], options().local_most);
    }
  }
}

Status ZeroOneAdam::make_step(std::span<float> x, std::span<const float> g, double lr) {
  const Phase now = phase();
  if (now == Phase::kLearn || now == Phase::kFollow) {
    step_together(x, g, lr, now == Phase::kLearn);
    count(now);
    return {};
  }
  if (!has_last_) {
    const std::span<float> last = alone_[1];
    std::copy(x.begin(), x.end(), last.begin());
    has_last_ = true;
  }
  ++since_;
  rates_ += static_cast<double>(rate_);
  if (now == Phase::kAlone) {
    step_alone(x);
  } else {
    step_met(x);
  }
  count(now);
  return {};
}

Status ZeroOneAdam::settle_at(std::span<float> x) {
  if (since_ == 0) return {};
  const std::span<const float> u = alone_[0];
  std::copy(u.begin(), u.end(), gradients().begin());
  GW_TRY(exchange_all(*updates_, tensors()));
  step_met(x);
  since_ = 0;
  rates_ = 0;
  return {};
}

std::vector<Method::Kept> ZeroOneAdam::kept() {
  std::vector<Kept> entries;
  for (NamedTensor& named : moments_.named(slices())) entries.push_back({std::move(named)});
  return entries;
}

Status ZeroOneAdam::loaded() {
  for (std::size_t counter = 1; counter < kEnd; ++counter) {
    const std::int64_t least = counter == kVarianceEvery || counter == kLocalEvery ? 1 : 0;
    if (counters_[counter] < least) {
      return Status(
          Code::kInvalidArgument,
          format("zero_one_adam: saved counter %zu is %lld (expected at least %lld)", counter,
                 static_cast<long long>(counters_[counter]), static_cast<long long>(least)));
    }
  }
  // Saved between exchanges' steps: what all ranks hold now is what they held after the last one.
  has_last_ = false;
  since_ = 0;
  rates_ = 0;
  return {};
}

}  // namespace gradwire
