// y = x W^T + b.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

// x: (rows, in), weight: (out, in), bias: (out), y: (rows, out).
//   dW = dy^T x      db = column sums of dy      dx = dy W
template <typename T>
class Linear final : public Layer<T> {
 public:
  Linear(std::int64_t in, std::int64_t out) : in_(in), out_(out) {}

  SampleShape output() const override { return {out_, 1, 1}; }
  ParameterTable parameters() const override;
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  std::int64_t in_;
  std::int64_t out_;
};

}  // namespace gradwire
