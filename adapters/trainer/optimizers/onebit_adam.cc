#include "adapters/trainer/optimizers/onebit_adam.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/optimizers/adamw.h"

namespace gradwire {

float adam_bound(const OptimizerOptions& options) {
  return static_cast<float>(std::max(1.0, (1 - options.beta1) / std::sqrt(1 - options.beta2)));
}

Result<std::unique_ptr<Method>> OnebitAdam::create(Parts parts) {
  std::unique_ptr<OnebitAdam> own(new OnebitAdam(std::move(parts)));
  GW_ASSIGN(own->moments_,
            FlatState::allocate(own->slices(), {"exp_avg", "exp_avg_sq"}, own->options().memory));
  const std::string& asked = own->options().compressor;
  GW_ASSIGN(own->momenta_, own->open_exchange("momenta", asked.empty() ? kOneBit : asked));
  return std::unique_ptr<Method>(std::move(own));
}

Status OnebitAdam::before_step(double learning_rate) {
  return dense() ? exact().exchange().before_step(learning_rate) : Status();
}

Status OnebitAdam::on_gradient(int index, TensorView grad, const Stream& stream) {
  if (dense()) return exact().exchange().on_gradient(index, grad, stream);
  const AdamFactors f(options().optimizer, steps());
  const std::span<float> g = gradient(index);
  const std::span<const float> m = part(moments_[0], index);
  const std::span<const float> v = part(moments_[1], index);
  for (std::size_t i = 0; i < g.size(); ++i) {
    g[i] = v[i] == 0 ? 0.0F : f.beta1 * m[i] + f.rest1 * g[i];
  }
  return momenta_->ready(index, stream);
}

Status OnebitAdam::finish(const Stream& stream) {
  if (dense()) return exact().exchange().finish(stream);
  GW_TRY(momenta_->finish(stream));
  return exact().count_step();
}

void OnebitAdam::freeze_variance() {
  const std::span<float> v = moments_[1];
  const AdamFactors last(options().optimizer, options().freeze - 1);
  for (float& value : v) value *= last.correct2;
}

Status OnebitAdam::make_step(std::span<float> x, std::span<const float> g, double lr) {
  const bool learning = dense();
  const AdamFactors f(options().optimizer, steps());
  const auto rate = static_cast<float>(lr);
  const float most = adam_bound(options().optimizer);
  for (int t = 0; t < tensors(); ++t) {
    const float decay = static_cast<float>(lr) * decay_of(t);
    const std::span<float> own = part(x, t);
    const std::span<const float> got = part(g, t);
    const std::span<float> m = part(moments_[0], t);
    const std::span<float> v = part(moments_[1], t);
    for (std::size_t i = 0; i < own.size(); ++i) {
      float direction = 0;
      if (learning) {
        adam_moments(f, got[i], m[i], v[i]);
        direction = m[i] * f.correct1 / (std::sqrt(v[i] * f.correct2) + f.epsilon);
      } else {
        m[i] = v[i] == 0 ? 0.0F : got[i];
        direction = std::clamp(m[i] / (std::sqrt(v[i]) + f.epsilon), -most, most);
      }
      own[i] -= rate * direction + decay * own[i];
    }
  }
  set_steps(steps() + 1);
  if (learning && !dense()) freeze_variance();
  return {};
}

std::vector<Method::Kept> OnebitAdam::kept() {
  std::vector<Kept> entries;
  for (NamedTensor& named : moments_.named(slices())) entries.push_back({std::move(named)});
  return entries;
}

}  // namespace gradwire
