// 1-bit Adam: Adam while the variance is learnt, then momenta in one bit an element.
//
//   step t <= freeze:  g = mean over ranks of g_i, dense; Adam with weight decay apart, as adamw
//   at t = freeze:     v <- v / (1 - beta2^freeze), and stays
//   step t > freeze:   m_i = beta1 m + (1 - beta1) g_i
//                      m   = mean over ranks of m_i, compressed with error feedback both ways
//                      x  <- x - lr (m / (sqrt(v) + epsilon) + weight_decay x)
//
// Momenta travel while backward still runs, tensor by tensor. The second mean is not corrected for
// its start. Elements whose frozen variance is 0 had no gradient in all dense steps: their momentum
// is 0 and only decay moves them, since one bit cannot say zero and dividing by epsilon would blow
// its noise up. Elements whose variance is merely tiny get the noise of their bucket's scale, many
// times their own momentum: m / (sqrt(v) + epsilon) is therefore cut to what Adam itself never
// exceeds (adam_bound()). Error feedback makes such an element's signs alternate, so that it stays.
//
// Bytes: dense steps as all-reduce of fp32; then as signsgd under sra, 1/32 of them (the default).
// Source: Tang et al., "1-bit Adam: communication efficient large-scale training with Adam's
// convergence speed", ICML 2021, algorithm 1. Deviations: scales per 4096 elements, weight decay,
// the division at the freeze, the cut.
#pragma once

#include <memory>

#include "adapters/trainer/optimizers/method.h"
#include "trainer/optimizers/flat_state.h"

namespace gradwire {

// What momenta and updates travel as unless asked otherwise: all of them, one bit an element.
inline constexpr const char* kOneBit = "signsgd:ef=ef14,combine=sra,min_elems=0,dense_1d=false";

// The longest step of an element under Adam, in rates: (1 - beta1) / sqrt(1 - beta2), or 1 where
// that is less. Source: Kingma, Ba, "Adam", ICLR 2015, section 2.1.
float adam_bound(const OptimizerOptions& options);

class OnebitAdam final : public Method {
 public:
  static Result<std::unique_ptr<Method>> create(Parts parts);

  Status before_step(double learning_rate) override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  Status finish(const Stream& stream) override;
  Status make_step(std::span<float> x, std::span<const float> g, double lr) override;

 protected:
  std::vector<Kept> kept() override;

 private:
  explicit OnebitAdam(Parts parts) : Method(std::move(parts)) {}
  bool dense() const { return steps() < options().freeze; }
  void freeze_variance();

  FlatState moments_;  // m, v
  Aggregator* momenta_ = nullptr;
};

}  // namespace gradwire
