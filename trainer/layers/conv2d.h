// Convolution as a matrix product: every window of the image becomes a column.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

// Square kernel of odd size, stride 1, zero padding that keeps height and width.
// x: (rows, in, h, w), weight: (out, in, k, k), bias: (out), y: (rows, out, h, w).
//
//   per sample, with columns C of (in k k, h w):   y = W C + b
//   dW = sum over samples of dy C^T    db = sum of dy over samples and positions
//   dx = col2im(W^T dy)
//
// C is built anew in backward: one sample's columns stay in the cache, a batch's would not.
template <typename T>
class Conv2d final : public Layer<T> {
 public:
  Conv2d(SampleShape in, std::int64_t out_channels, std::int64_t kernel)
      : in_(in), out_(out_channels), kernel_(kernel) {}

  SampleShape output() const override { return {out_, in_.height, in_.width}; }
  ParameterTable parameters() const override;
  std::int64_t scratch_elems() const override { return depth() * plane(); }
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  std::int64_t depth() const { return in_.channels * kernel_ * kernel_; }  // rows of C
  std::int64_t plane() const { return in_.height * in_.width; }            // columns of C
  void im2col(const T* image, T* columns) const;
  void col2im(const T* columns, T* image) const;

  SampleShape in_;
  std::int64_t out_;
  std::int64_t kernel_;
};

}  // namespace gradwire
