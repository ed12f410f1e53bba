#include "trainer/layers/avg_pool2d.h"

#include <algorithm>

#include "trainer/layers/fixed_sum.h"

namespace gradwire {

template <typename T>
template <typename Visit>
void AvgPool2d<T>::for_each_line(std::int64_t rows, Visit visit) const {
  const SampleShape out = output();
  std::int64_t output = 0;
  for (std::int64_t plane = 0; plane < rows * in_.channels; ++plane) {
    for (std::int64_t h = 0; h < out.height; ++h) {
      for (std::int64_t w = 0; w < out.width; ++w, ++output) {
        for (std::int64_t line = h * window_h_; line < (h + 1) * window_h_; ++line) {
          visit(output, (plane * in_.height + line) * in_.width + w * window_w_);
        }
      }
    }
  }
}

template <typename T>
PoolShape AvgPool2d<T>::on_device(std::int64_t rows) const {
  const SampleShape out = output();
  return {rows * in_.channels, in_.height, in_.width, out.height, out.width,
          window_h_,           window_w_,  window_h_, window_w_};
}

template <typename T>
void AvgPool2d<T>::forward(const LayerPass<T>& pass) const {
  if (pass.device != nullptr) {
    return pass.device->avg_pool(on_device(pass.rows), pass.x, pass.y);
  }
  std::fill(pass.y.begin(), pass.y.end(), T(0));
  for_each_line(pass.rows, [&](std::int64_t out, std::int64_t line) {
    pass.y.data()[out] += fixed_sum(pass.x.data() + line, window_w_);
  });
  const T share = T(1) / static_cast<T>(window_h_ * window_w_);
  for (T& y : pass.y) y *= share;
}

template <typename T>
void AvgPool2d<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                  std::span<T> dx) const {
  if (pass.device != nullptr) {
    return pass.device->avg_pool_back(on_device(pass.rows), dy, dx);
  }
  std::fill(dx.begin(), dx.end(), T(0));
  const T share = T(1) / static_cast<T>(window_h_ * window_w_);
  for_each_line(pass.rows, [&](std::int64_t out, std::int64_t line) {
    std::fill_n(dx.data() + line, window_w_, dy.data()[out] * share);
  });
}

template class AvgPool2d<float>;
template class AvgPool2d<double>;

}  // namespace gradwire
