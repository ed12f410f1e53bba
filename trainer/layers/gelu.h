// y = x Phi(x), with the normal distribution's Phi by erf (not the approximation by tanh).
// Source: Hendrycks, Gimpel, "Gaussian error linear units", arXiv:1606.08415, 2016.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

// dy/dx = Phi(x) + x phi(x).
template <typename T>
class Gelu final : public Layer<T> {
 public:
  explicit Gelu(SampleShape shape) : shape_(shape) {}

  SampleShape output() const override { return shape_; }
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    GW_TRY(check_reads(
        x, {Placement::invariant(), Placement::by_features(), Placement::by_positions()}));
    return x;
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  SampleShape shape_;
};

}  // namespace gradwire
