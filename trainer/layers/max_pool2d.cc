#include "trainer/layers/max_pool2d.h"

#include <algorithm>
#include <cmath>

namespace gradwire {

// Calls visit(output index, input index of the winner) for every window.
template <typename T>
template <typename Visit>
void MaxPool2d<T>::for_each_window(std::int64_t rows, const T* x, Visit visit) const {
  const SampleShape out = output();
  std::int64_t output = 0;
  for (std::int64_t plane = 0; plane < rows * in_.channels; ++plane) {
    for (std::int64_t h = 0; h < out.height; ++h) {
      for (std::int64_t w = 0; w < out.width; ++w) {
        const std::int64_t corner = (plane * in_.height + h * stride_) * in_.width + w * stride_;
        std::int64_t best = corner;
        for (std::int64_t line = 0; line < window_; ++line) {
          const std::int64_t first = corner + line * in_.width;
          for (std::int64_t at = first; at < first + window_; ++at) {
            if (x[at] > x[best] || (std::isnan(x[at]) && !std::isnan(x[best]))) best = at;
          }
        }
        visit(output++, best);
      }
    }
  }
}

template <typename T>
PoolShape MaxPool2d<T>::on_device(std::int64_t rows) const {
  const SampleShape out = output();
  return {rows * in_.channels,
          in_.height,
          in_.width,
          out.height,
          out.width,
          window_,
          window_,
          stride_,
          stride_};
}

template <typename T>
void MaxPool2d<T>::forward(const LayerPass<T>& pass) const {
  if (pass.device != nullptr) {
    return pass.device->max_pool(on_device(pass.rows), pass.x, pass.y);
  }
  for_each_window(pass.rows, pass.x.data(), [&](std::int64_t out, std::int64_t from) {
    pass.y.data()[out] = pass.x.data()[from];
  });
}

template <typename T>
void MaxPool2d<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                  std::span<T> dx) const {
  if (pass.device != nullptr) {
    return pass.device->max_pool_back(on_device(pass.rows), pass.x, dy, dx);
  }
  std::fill(dx.begin(), dx.end(), T(0));
  if (stride_ >= window_) {  // copied, not added: -0 stays -0
    for_each_window(pass.rows, pass.x.data(),
                    [&](std::int64_t out, std::int64_t from) { dx.data()[from] = dy.data()[out]; });
  } else {
    for_each_window(pass.rows, pass.x.data(), [&](std::int64_t out, std::int64_t from) {
      dx.data()[from] += dy.data()[out];
    });
  }
}

template class MaxPool2d<float>;
template class MaxPool2d<double>;

}  // namespace gradwire
