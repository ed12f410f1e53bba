// DiLoCo: every rank trains alone for many steps; then the way it has come travels as a gradient.
//
//   inner, every step:        x_i by AdamW from its own g_i; nothing travels
//   outer, every `inner_steps`:  D = mean over ranks of (X - x_i), as `compressor` carries it
//                             X by Nesterov (outer_lr, momentum) from D;  x_i <- X
//
// X is what all ranks held after the last outer step, so replicas are bit-identical after each of
// them. The inner moments stay with their ranks. A run's last step is followed by an outer one.
//
// Bytes: one exchange of all parameters for inner_steps steps, exact by default; absmax:bits=4 and
// the like make it fewer.
// Source: Douillard et al., "DiLoCo: distributed low-communication training of language models",
// 2023, algorithm 1.
#pragma once

#include <memory>
#include <vector>

#include "adapters/trainer/optimizers/method.h"
#include "trainer/optimizers/flat_state.h"

namespace gradwire {

class DiLoCo final : public Method {
 public:
  static Result<std::unique_ptr<Method>> create(Parts parts);

  bool replicas_equal() const override { return since_ == 0; }
  bool meets() const override { return since_ + 1 >= options().inner_steps; }
  Status make_step(std::span<float> x, std::span<const float> g, double lr) override;
  Status settle_at(std::span<float> x) override;

 protected:
  std::vector<Kept> kept() override;
  Status loaded() override;

 private:
  explicit DiLoCo(Parts parts) : Method(std::move(parts)) {}
  Status outer_step(std::span<float> x);

  std::unique_ptr<Optimizer> inner_;
  std::unique_ptr<Optimizer> outer_;
  FlatState shared_;         // X
  bool has_shared_ = false;  // X is set
  std::int64_t since_ = 0;   // inner steps since the last outer one
  Aggregator* ways_ = nullptr;
};

}  // namespace gradwire
