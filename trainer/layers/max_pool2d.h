// The maximum of every 2x2 window, windows side by side.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

// x: (rows, channels, h, w) -> y: (rows, channels, h/2, w/2), rounded down: an odd last row or
// column is left out. The gradient goes to the first of equal maxima, in row order. NaN wins.
template <typename T>
class MaxPool2d final : public Layer<T> {
 public:
  explicit MaxPool2d(SampleShape in) : in_(in) {}

  SampleShape output() const override { return {in_.channels, in_.height / 2, in_.width / 2}; }
  void forward(const LayerPass<T>& pass) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  SampleShape in_;
};

}  // namespace gradwire
