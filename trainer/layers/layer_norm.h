// Every position's features with mean 0 and variance 1, then scaled and shifted.
// Source: Ba, Kiros, Hinton, "Layer normalization", arXiv:1607.06450, 2016.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

// x, y: (rows positions, width), for shapes (positions, 1, width); weight and bias: (width). With
// mean m and (biased) variance v of a position's n = width values, z = (x - m) / sqrt(v + epsilon):
//
//   y = weight z + bias
//   dweight = sum over positions of dy z      dbias = sum over positions of dy
//   dx = (g - mean of g - z mean of (g z)) / sqrt(v + epsilon), g = weight dy
//
// Kept from forward: m and 1 / sqrt(v + epsilon) per position. Sums of one position run in double
// and in fixed order.
template <typename T>
class LayerNorm final : public Layer<T> {
 public:
  static constexpr double kEpsilon = 1e-5;

  explicit LayerNorm(SampleShape shape) : shape_(shape) {}

  SampleShape output() const override { return shape_; }
  ParameterTable parameters() const override;
  std::int64_t saved_elems(std::int64_t rows) const override { return 2 * rows * positions(); }
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  std::int64_t positions() const { return shape_.channels * shape_.height; }

  SampleShape shape_;
};

}  // namespace gradwire
