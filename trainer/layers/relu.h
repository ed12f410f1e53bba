// y = max(x, 0), element by element.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

// The derivative at 0 is 0. NaN stays NaN, so that a diverged run shows it.
template <typename T>
class Relu final : public Layer<T> {
 public:
  explicit Relu(SampleShape shape) : shape_(shape) {}

  SampleShape output() const override { return shape_; }
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    GW_TRY(
        check_reads(x, {Placement::invariant(), Placement::by_features(), Placement::by_positions(),
                        Placement::by_samples(), Placement::by_tiles()}));
    return x;
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  SampleShape shape_;
};

}  // namespace gradwire
