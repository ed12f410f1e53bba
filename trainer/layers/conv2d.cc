#include "trainer/layers/conv2d.h"

#include <algorithm>

#include "trainer/layers/fixed_sum.h"
#include "trainer/layers/matrix_map.h"

namespace gradwire {
namespace {

// Along one axis of `size`, an output at o reads the input at o + shift: the outputs for which that
// lies inside are [begin, end).
struct Overlap {
  std::int64_t begin;
  std::int64_t end;
  Overlap(std::int64_t size, std::int64_t shift)
      : begin(std::clamp<std::int64_t>(-shift, 0, size)),
        end(std::clamp<std::int64_t>(size - shift, begin, size)) {}
};

}  // namespace

template <typename T>
ParameterTable Conv2d<T>::parameters() const {
  return {{"weight", Shape{{out_, in_.channels, kernel_, kernel_}, 4}, depth(), 0},
          {"bias", Shape::vector(out_), depth(), out_ * depth()}};
}

template <typename T>
void Conv2d<T>::im2col(const T* image, T* columns) const {
  T* row = columns;
  for (std::int64_t d = 0; d < depth(); ++d, row += plane()) {
    const std::int64_t channel = d / (kernel_ * kernel_);
    const std::int64_t down = d / kernel_ % kernel_ - kernel_ / 2;
    const std::int64_t right = d % kernel_ - kernel_ / 2;
    const Overlap lines(in_.height, down);
    const Overlap cells(in_.width, right);
    const T* source = image + channel * plane();
    std::fill_n(row, plane(), T(0));
    for (std::int64_t h = lines.begin; h < lines.end; ++h) {
      std::copy_n(source + (h + down) * in_.width + cells.begin + right, cells.end - cells.begin,
                  row + h * in_.width + cells.begin);
    }
  }
}

// Adds in the order of the columns' rows, so that every sum has one fixed order.
template <typename T>
void Conv2d<T>::col2im(const T* columns, T* image) const {
  std::fill_n(image, in_.elems(), T(0));
  const T* row = columns;
  for (std::int64_t d = 0; d < depth(); ++d, row += plane()) {
    const std::int64_t channel = d / (kernel_ * kernel_);
    const std::int64_t down = d / kernel_ % kernel_ - kernel_ / 2;
    const std::int64_t right = d % kernel_ - kernel_ / 2;
    const Overlap lines(in_.height, down);
    const Overlap cells(in_.width, right);
    for (std::int64_t h = lines.begin; h < lines.end; ++h) {
      T* target = image + channel * plane() + (h + down) * in_.width + right;
      const T* source = row + h * in_.width;
      for (std::int64_t w = cells.begin; w < cells.end; ++w) target[w] += source[w];
    }
  }
}

template <typename T>
void Conv2d<T>::forward(const LayerPass<T>& pass) const {
  const auto weight = matrix(pass.params.data(), out_, depth());
  const T* bias = pass.params.data() + out_ * depth();
  for (std::int64_t r = 0; r < pass.rows; ++r) {
    im2col(pass.x.data() + r * in_.elems(), pass.scratch.data());
    T* y = pass.y.data() + r * out_ * plane();
    const T* columns = pass.scratch.data();
    matrix(y, out_, plane()).noalias() = weight * matrix(columns, depth(), plane());
    for (std::int64_t o = 0; o < out_; ++o) {
      for (std::int64_t p = 0; p < plane(); ++p) y[o * plane() + p] += bias[o];
    }
  }
}

template <typename T>
void Conv2d<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                std::span<T> grads) const {
  std::fill(grads.begin(), grads.end(), T(0));
  auto weight = matrix(grads.data(), out_, depth());
  T* bias = grads.data() + out_ * depth();
  for (std::int64_t r = 0; r < pass.rows; ++r) {
    im2col(pass.x.data() + r * in_.elems(), pass.scratch.data());
    const T* columns = pass.scratch.data();
    const T* delta = dy.data() + r * out_ * plane();
    weight.noalias() +=
        matrix(delta, out_, plane()) * matrix(columns, depth(), plane()).transpose();
    for (std::int64_t o = 0; o < out_; ++o) bias[o] += fixed_sum(delta + o * plane(), plane());
  }
}

template <typename T>
void Conv2d<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                               std::span<T> dx) const {
  const auto weight = matrix(pass.params.data(), out_, depth());
  for (std::int64_t r = 0; r < pass.rows; ++r) {
    const T* delta = dy.data() + r * out_ * plane();
    matrix(pass.scratch.data(), depth(), plane()).noalias() =
        weight.transpose() * matrix(delta, out_, plane());
    col2im(pass.scratch.data(), dx.data() + r * in_.elems());
  }
}

template class Conv2d<float>;
template class Conv2d<double>;

}  // namespace gradwire
