// 0/1 Adam: the variance learnt ever more rarely, one bit from the first step on, and then steps of
// every rank alone with one exchange for many of them.
//
//   t = 1, 2, ...; d counts updates of the variance, k the steps between two of them (1 at first)
//   t <= freeze, t % k == 0:  g = mean of g_i, dense; v <- beta2 v + (1 - beta2) g^2; every
//                             `variance_doubles` of these k doubles
//   t <= freeze, otherwise:   g = mean of g_i, compressed
//   both:                     m <- beta1 m + (1 - beta1) g;  x <- x - lr (m / (sqrt(v) + eps) + wd
//   x)
//
//   t > freeze, alone:        m <- beta1 m + (1 - beta1) g_i;  u <- u + lr m
//                             x <- x - lr m / (sqrt(v) + eps)
//   every l-th of those:      u = mean of u_i, compressed;  m = u / sum of the rates since the last
//                             x = x_last - u / (sqrt(v) + eps) - (sum of rates) wd x_last;  u = 0
//                             l starts at 1 and doubles every `local_doubles` exchanges, up to
//                             `local_most`
//
// x_last is what all ranks held after the last exchange, so replicas are bit-identical after every
// exchange and differ between them. What the compressed exchange of gradients left over is dropped
// at the freeze: it is in other units than u. Elements with a variance of 0 do not move but for
// decay, and quotients by sqrt(v) are cut to Adam's bound (per rate), both as in onebit_adam.h.
// Source: Lu et al., "Maximizing communication efficiency for large-scale training via 0/1 Adam",
// ICLR 2023, algorithm 1.
#pragma once

#include <memory>
#include <vector>

#include "adapters/trainer/optimizers/method.h"
#include "trainer/optimizers/flat_state.h"

namespace gradwire {

class ZeroOneAdam final : public Method {
 public:
  static Result<std::unique_ptr<Method>> create(Parts parts);

  bool replicas_equal() const override { return since_ == 0; }
  bool meets() const override { return phase() != Phase::kAlone; }
  Status before_step(double learning_rate) override;
  Status on_gradient(int index, TensorView grad, const Stream& stream) override;
  Status finish(const Stream& stream) override;
  Status make_step(std::span<float> x, std::span<const float> g, double lr) override;
  // Exchanges what has not been.
  Status settle_at(std::span<float> x) override;

 protected:
  std::vector<Kept> kept() override;
  Status loaded() override;

 private:
  // What the coming step does.
  enum class Phase : std::uint8_t { kLearn, kFollow, kAlone, kMeet };
  // counters_[1..4]
  enum Counter : std::size_t { kVarianceEvery = 1, kVarianceUpdates, kLocalEvery, kMeetings, kEnd };

  explicit ZeroOneAdam(Parts parts) : Method(std::move(parts)) {}
  Phase phase() const;
  bool frozen() const { return steps() >= options().freeze; }
  void step_together(std::span<float> x, std::span<const float> g, double lr, bool learn);
  void step_alone(std::span<float> x);
  void step_met(std::span<float> x);
  void count(Phase done);

  FlatState moments_;              // m, v
  FlatState alone_;                // u, x_last
  std::int64_t since_ = 0;         // steps alone since the last exchange
  double rates_ = 0;               // their sum
  float rate_ = 0;                 // of this step
  bool has_last_ = false;          // x_last is set
  Aggregator* signs_ = nullptr;    // of gradients
  Aggregator* updates_ = nullptr;  // of u
};

}  // namespace gradwire
