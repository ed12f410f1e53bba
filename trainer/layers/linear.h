// y = x W^T + b.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

struct LinearOptions {
  bool bias = true;
  std::int64_t positions = 1;  // of a sequence, each mapped alike
};

// x: (rows positions, in), weight: (out, in), bias: (out), y: (rows positions, out).
//   dW = dy^T x      db = column sums of dy      dx = dy W
template <typename T>
class Linear final : public Layer<T> {
 public:
  Linear(std::int64_t in, std::int64_t out, LinearOptions options = {})
      : in_(in), out_(out), options_(options) {}

  SampleShape output() const override {
    return options_.positions == 1 ? SampleShape{out_, 1, 1}
                                   : SampleShape{options_.positions, 1, out_};
  }
  ParameterTable parameters() const override;
  LayerCost cost() const override {
    const std::int64_t macs = options_.positions * in_ * out_;
    return {macs, macs, macs};
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  void forward_there(const LayerPass<T>& pass) const;
  void backward_params_there(const LayerPass<T>& pass, std::span<const T> dy,
                             std::span<T> grads) const;

  std::int64_t in_;
  std::int64_t out_;
  LinearOptions options_;
};

}  // namespace gradwire
