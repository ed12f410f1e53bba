#include "adapters/trainer/optimizers/diloco.h"

#include <algorithm>
#include <utility>

namespace gradwire {

Result<std::unique_ptr<Method>> DiLoCo::create(Parts parts) {
  std::unique_ptr<DiLoCo> own(new DiLoCo(std::move(parts)));
  OptimizerOptions inner = own->options().optimizer;
  inner.name = "adamw";
  GW_ASSIGN(own->inner_, make_optimizer(inner, own->slices(), nullptr, own->options().memory));
  OptimizerOptions outer;
  outer.name = "nesterov";
  outer.momentum = own->options().optimizer.momentum;
  GW_ASSIGN(own->outer_, make_optimizer(outer, own->slices(), nullptr, own->options().memory));
  GW_ASSIGN(own->shared_, FlatState::allocate(own->slices(), {"shared"}, own->options().memory));
  const std::string& asked = own->options().compressor;
  GW_ASSIGN(own->ways_, own->open_exchange("outer", asked.empty() ? "none" : asked));
  return std::unique_ptr<Method>(std::move(own));
}

Status DiLoCo::make_step(std::span<float> x, std::span<const float> g, double lr) {
  const std::span<float> shared = shared_[0];
  if (!has_shared_) {
    std::copy(x.begin(), x.end(), shared.begin());
    has_shared_ = true;
  }
  GW_TRY(inner_->step(x, g, lr));
  set_steps(steps() + 1);
  if (++since_ < options().inner_steps) return {};
  return outer_step(x);
}

Status DiLoCo::outer_step(std::span<float> x) {
  const std::span<float> shared = shared_[0];
  const std::span<float> way = gradients();
  for (std::size_t i = 0; i < x.size(); ++i) way[i] = shared[i] - x[i];
  GW_TRY(exchange_all(*ways_, tensors()));
  GW_TRY(outer_->step(shared, way, options().outer_lr));
  std::copy(shared.begin(), shared.end(), x.begin());
  since_ = 0;
  return exact().count_step();
}

Status DiLoCo::settle_at(std::span<float> x) { return since_ == 0 ? Status() : outer_step(x); }

std::vector<Method::Kept> DiLoCo::kept() {
  std::vector<Kept> entries;
  for (NamedTensor& named : inner_->state()) entries.push_back({std::move(named), true});
  for (NamedTensor& named : outer_->state()) entries.push_back({std::move(named)});
  return entries;
}

Status DiLoCo::loaded() {
  inner_->set_steps(steps());
  outer_->set_steps(0);  // its rule does not look at them
  has_shared_ = false;   // between outer steps' ends, X is what every rank's parameters are
  since_ = 0;
  return {};
}

}  // namespace gradwire
