// The maximum of every square window.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

// x: (rows, channels, h, w) -> y: (rows, channels, (h - window) / stride + 1, likewise w): what the
// last whole window does not reach is left out. The gradient goes to the first of equal maxima, in
// row order. NaN wins.
template <typename T>
class MaxPool2d final : public Layer<T> {
 public:
  // Requires an image of at least one window.
  explicit MaxPool2d(SampleShape in, std::int64_t window = 2, std::int64_t stride = 2)
      : in_(in), window_(window), stride_(stride) {}

  SampleShape output() const override {
    return {in_.channels, (in_.height - window_) / stride_ + 1,
            (in_.width - window_) / stride_ + 1};
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  PoolShape on_device(std::int64_t rows) const;
  template <typename Visit>
  void for_each_window(std::int64_t rows, const T* x, Visit visit) const;

  SampleShape in_;
  std::int64_t window_;
  std::int64_t stride_;
};

}  // namespace gradwire
