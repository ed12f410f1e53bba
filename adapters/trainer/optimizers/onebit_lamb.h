// 1-bit LAMB: LAMB while variance and trust ratios are learnt, then momenta in one bit an element
// under ratios that follow from what arrives.
//
//   step t <= freeze:  g = mean of g_i, dense; LAMB; per tensor r <- 0.9 r + 0.1 |x| / |u|
//   at t = freeze:     v <- v / (1 - beta2^freeze) and r <- r / (1 - 0.9^freeze), and both stay;
//                      w <- v;  c = (mean over tensors of rms(m)) / rms(m) per tensor
//   step t > freeze:   all tensors as one:  M = mean of c (beta1 m + (1 - beta1) g_i), compressed
//                      m' = M / c;  g = (m' - beta1 m) / (1 - beta1);  w <- beta2 w + (1 - beta2)
//                      g^2 u = m' / (sqrt(v) + eps) + weight_decay x f = max over elements of
//                      (sqrt(v) + eps) / (sqrt(w) + eps), the share of it
//                          that |m' / (sqrt(v) + eps)| has in |u|, between 0.5 and 4, and within a
//                          tenth of the f before it (1 at first)
//                      x <- x - lr r f u
//
// c lets one scale fit all tensors. Elements whose frozen variance is 0 do not move but for decay
// (see onebit_adam.h). Norms are of whole tensors, in double.
// Source: Li et al., "1-bit LAMB: communication efficient large-scale large-batch training with
// LAMB's convergence speed", HiPC 2022, algorithm 1.
#pragma once

#include <memory>
#include <vector>

#include "adapters/trainer/optimizers/method.h"
#include "trainer/optimizers/flat_state.h"

namespace gradwire {

class OnebitLamb final : public Method {
 public:
  static Result<std::unique_ptr<Method>> create(Parts parts);

  Status before_step(double learning_rate) override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  Status finish(const Stream& stream) override;
  Status make_step(std::span<float> x, std::span<const float> g, double lr) override;

 protected:
  std::vector<Kept> kept() override;

 private:
  // Per tensor; in one vector so that they are saved as one.
  enum Number : std::size_t { kRatio, kScale, kFactor, kNumbers };
  // Spans of one tensor during a step.
  struct Tensor {
    std::span<float> x;
    std::span<const float> g;
    std::span<float> m;
    std::span<float> v;
    std::span<float> fresh;
    std::span<float> u;
    float decay;
  };

  explicit OnebitLamb(Parts parts) : Method(std::move(parts)) {}
  bool dense() const { return steps() < options().freeze; }
  double& number(Number which, int tensor) {
    return numbers_[static_cast<std::size_t>(tensor) * kNumbers + which];
  }
  Tensor tensor(int index, std::span<float> x, std::span<const float> g);
  void step_dense(const Tensor& t, int index, double lr);
  void step_compressed(const Tensor& t, int index, double lr);
  float take_momentum(const Tensor& t, float scale);
  void freeze();

  FlatState state_;   // m, v, w
  FlatState update_;  // u
  std::vector<double> numbers_;
  Aggregator* momenta_ = nullptr;
};

}  // namespace gradwire
