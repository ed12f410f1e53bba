#include "adapters/trainer/optimizers/onebit_lamb.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "adapters/trainer/optimizers/onebit_adam.h"
#include "base/elements.h"
#include "trainer/optimizers/adamw.h"
#include "trainer/step/clipping.h"

namespace gradwire {
namespace {

constexpr double kRatioMemory = 0.9;
constexpr double kLeastFactor = 0.5;
constexpr double kMostFactor = 4;
constexpr double kFactorChange = 0.1;

double rms(std::span<const float> values) {
  return values.empty() ? 0 : norm(values) / std::sqrt(static_cast<double>(values.size()));
}

}  // namespace

Result<std::unique_ptr<Method>> OnebitLamb::create(Parts parts) {
  std::unique_ptr<OnebitLamb> own(new OnebitLamb(std::move(parts)));
  GW_ASSIGN(own->state_,
            FlatState::allocate(own->slices(), {"exp_avg", "exp_avg_sq", "exp_avg_sq_fresh"},
                                own->options().memory));
  GW_ASSIGN(own->update_, FlatState::allocate(own->slices(), {"update"}, own->options().memory));
  own->numbers_.assign(static_cast<std::size_t>(own->tensors()) * kNumbers, 0);
  for (int t = 0; t < own->tensors(); ++t) {
    own->number(kScale, t) = 1;
    own->number(kFactor, t) = 1;
  }
  const std::string& asked = own->options().compressor;
  GW_ASSIGN(own->momenta_, own->open_exchange("momenta", asked.empty() ? kOneBit : asked, true));
  return std::unique_ptr<Method>(std::move(own));
}

Status OnebitLamb::before_step(double learning_rate) {
  return dense() ? exact().exchange().before_step(learning_rate) : Status();
}

Status OnebitLamb::on_gradient(int index, TensorView grad, const Stream& stream) {
  if (dense()) return exact().exchange().on_gradient(index, grad, stream);
  const AdamFactors f(options().optimizer, steps());
  const std::span<float> g = gradient(index);
  const std::span<const float> m = part(state_[0], index);
  const std::span<const float> v = part(state_[1], index);
  const auto scale = static_cast<float>(number(kScale, index));
  for (std::size_t i = 0; i < g.size(); ++i) {
    g[i] = v[i] == 0 ? 0.0F : scale * (f.beta1 * m[i] + f.rest1 * g[i]);
  }
  return {};
}

Status OnebitLamb::finish(const Stream& stream) {
  if (dense()) return exact().exchange().finish(stream);
  GW_TRY(exchange_all(*momenta_, 1));
  return exact().count_step();
}

OnebitLamb::Tensor OnebitLamb::tensor(int index, std::span<float> x, std::span<const float> g) {
  return {part(x, index),         part(g, index),         part(state_[0], index),
          part(state_[1], index), part(state_[2], index), part(update_[0], index),
          decay_of(index)};
}

void OnebitLamb::step_dense(const Tensor& t, int index, double lr) {
  const AdamFactors f(options().optimizer, steps());
  for (std::size_t i = 0; i < t.x.size(); ++i) {
    adam_moments(f, t.g[i], t.m[i], t.v[i]);
    t.u[i] = t.m[i] * f.correct1 / (std::sqrt(t.v[i] * f.correct2) + f.epsilon) + t.decay * t.x[i];
  }
  const double long_x = norm(t.x);
  const double long_u = norm(t.u);
  const double ratio = long_x > 0 && long_u > 0 ? long_x / long_u : 1;
  double& kept = number(kRatio, index);
  kept = kRatioMemory * kept + (1 - kRatioMemory) * ratio;
  const auto rate = static_cast<float>(lr * ratio);
  for (std::size_t i = 0; i < t.x.size(); ++i) t.x[i] -= rate * t.u[i];
}

// m <- m', w takes in what the gradients must have been, u <- m' / (sqrt(v) + eps). Returns the
// largest quotient of the denominators, 0 when no element has one.
float OnebitLamb::take_momentum(const Tensor& t, float scale) {
  const AdamFactors f(options().optimizer, steps());
  float most = 0;
  for (std::size_t i = 0; i < t.x.size(); ++i) {
    if (t.v[i] == 0) {
      t.m[i] = 0;
      t.u[i] = 0;
      continue;
    }
    const float arrived = t.g[i] / scale;
    const float gradient = (arrived - f.beta1 * t.m[i]) / f.rest1;
    t.fresh[i] = f.beta2 * t.fresh[i] + f.rest2 * (gradient * gradient);
    t.m[i] = arrived;
    const float frozen = std::sqrt(t.v[i]) + f.epsilon;
    t.u[i] = arrived / frozen;
    most = std::max(most, frozen / (std::sqrt(t.fresh[i]) + f.epsilon));
  }
  return most;
}

void OnebitLamb::step_compressed(const Tensor& t, int index, double lr) {
  double factor = take_momentum(t, static_cast<float>(number(kScale, index)));
  if (t.decay > 0) {
    const double of_momentum = norm(t.u);
    for (std::size_t i = 0; i < t.x.size(); ++i) t.u[i] += t.decay * t.x[i];
    const double all = norm(t.u);
    const double share = all > 0 ? std::min(1.0, of_momentum / all) : 1;
    factor = factor * share + (1 - share);
  }
  double& last = number(kFactor, index);
  factor = std::clamp(factor, kLeastFactor, kMostFactor);
  factor = std::clamp(factor, last * (1 - kFactorChange), last * (1 + kFactorChange));
  last = factor;
  const auto rate = static_cast<float>(lr * number(kRatio, index) * factor);
  for (std::size_t i = 0; i < t.x.size(); ++i) t.x[i] -= rate * t.u[i];
}

void OnebitLamb::freeze() {
  const AdamFactors last(options().optimizer, options().freeze - 1);
  const double heard = 1 - std::pow(kRatioMemory, static_cast<double>(options().freeze));
  const std::span<float> v = state_[1];
  for (float& value : v) value *= last.correct2;
  const std::span<float> fresh = state_[2];
  std::copy(v.begin(), v.end(), fresh.begin());
  double mean = 0;
  for (int t = 0; t < tensors(); ++t) mean += rms(part(state_[0], t)) / tensors();
  for (int t = 0; t < tensors(); ++t) {
    number(kRatio, t) /= heard;
    const double own = rms(part(state_[0], t));
    const auto scale = static_cast<float>(own > 0 ? mean / own : 1);
    number(kScale, t) = std::isfinite(scale) && scale > 0 ? static_cast<double>(scale) : 1;
  }
}

Status OnebitLamb::make_step(std::span<float> x, std::span<const float> g, double lr) {
  const bool learning = dense();
  for (int t = 0; t < tensors(); ++t) {
    if (learning) {
      step_dense(tensor(t, x, g), t, lr);
    } else {
      step_compressed(tensor(t, x, g), t, lr);
    }
  }
  set_steps(steps() + 1);
  if (learning && !dense()) freeze();
  return {};
}

std::vector<Method::Kept> OnebitLamb::kept() {
  std::vector<Kept> entries;
  for (NamedTensor& named : state_.named(slices())) entries.push_back({std::move(named)});
  entries.push_back({{"onebit_lamb.numbers", view_of(std::span(numbers_))}});
  return entries;
}

}  // namespace gradwire
