#include "trainer/layers/max_pool2d.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace gradwire {
namespace {

// Which of a window's four values its output is: 0 to 3 in row order.
template <typename T>
std::int64_t winner(const T* top, const T* bottom) {
  const std::array<T, 4> value{top[0], top[1], bottom[0], bottom[1]};
  std::size_t best = 0;
  for (std::size_t k = 1; k < value.size(); ++k) {
    if (value[k] > value[best] || (std::isnan(value[k]) && !std::isnan(value[best]))) best = k;
  }
  return static_cast<std::int64_t>(best);
}

// Calls visit(output index, input index of the winner) for every window.
template <typename T, typename Visit>
void for_each_window(SampleShape in, std::int64_t rows, const T* x, Visit visit) {
  std::int64_t output = 0;
  for (std::int64_t plane = 0; plane < rows * in.channels; ++plane) {
    for (std::int64_t h = 0; h + 1 < in.height; h += 2) {
      const std::int64_t line = (plane * in.height + h) * in.width;
      for (std::int64_t w = 0; w + 1 < in.width; w += 2) {
        const std::int64_t k = winner(x + line + w, x + line + in.width + w);
        visit(output++, line + w + (k / 2) * in.width + k % 2);
      }
    }
  }
}

}  // namespace

template <typename T>
void MaxPool2d<T>::forward(const LayerPass<T>& pass) const {
  for_each_window(in_, pass.rows, pass.x.data(), [&](std::int64_t out, std::int64_t from) {
    pass.y.data()[out] = pass.x.data()[from];
  });
}

template <typename T>
void MaxPool2d<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                  std::span<T> dx) const {
  std::fill(dx.begin(), dx.end(), T(0));
  for_each_window(in_, pass.rows, pass.x.data(),
                  [&](std::int64_t out, std::int64_t from) { dx.data()[from] = dy.data()[out]; });
}

template class MaxPool2d<float>;
template class MaxPool2d<double>;

}  // namespace gradwire
