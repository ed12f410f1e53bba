#include "trainer/layers/causal_attention.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/check.h"
#include "trainer/layers/fixed_sum.h"
#include "trainer/layers/matrix_map.h"

namespace gradwire {
namespace {

// Some neighbouring columns of a row-major matrix.
template <typename T>
using Columns =
    Eigen::Map<std::conditional_t<std::is_const_v<T>, const RowMatrix<std::remove_const_t<T>>,
                                  RowMatrix<std::remove_const_t<T>>>,
               Eigen::Unaligned, Eigen::OuterStride<>>;

template <typename T>
Columns<T> columns(T* first, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  return {first, rows, cols, Eigen::OuterStride<>(stride)};
}

// One head of one sample: its part of each array.
template <typename T>
struct Head {
  std::int64_t x;  // offset of the queries; keys and values follow width and 2 width later
  std::int64_t y;
  std::int64_t saved;  // maxima, then logarithms
  Head(std::int64_t number, std::int64_t positions, std::int64_t width, std::int64_t heads) {
    const std::int64_t row = number / heads;
    const std::int64_t first = number % heads * (width / heads);
    x = row * positions * 3 * width + first;
    y = row * positions * width + first;
    saved = number * 2 * positions;
  }
};

}  // namespace

template <typename T>
CausalAttention<T>::CausalAttention(std::int64_t positions, std::int64_t width, std::int64_t heads)
    : positions_(positions), width_(width), heads_(heads) {
  GW_CHECK(heads > 0 && width % heads == 0);
}

template <typename T>
void CausalAttention<T>::forward(const LayerPass<T>& pass) const {
  if (pass.device != nullptr) {
    return pass.device->attention({pass.rows, positions_, width_, heads_}, pass.x, pass.scratch,
                                  pass.saved, pass.y);
  }
  const std::int64_t n = positions_;
  const std::int64_t size = width_ / heads_;
  const T factor = T(1) / std::sqrt(static_cast<T>(size));
  auto p = matrix(pass.scratch.data(), n, n);
  for (std::int64_t number = 0; number < pass.rows * heads_; ++number) {
    const Head<T> head(number, n, width_, heads_);
    const T* x = pass.x.data() + head.x;
    p.noalias() =
        columns(x, n, size, 3 * width_) * columns(x + width_, n, size, 3 * width_).transpose();
    T* top = pass.saved.data() + head.saved;
    for (std::int64_t i = 0; i < n; ++i) {
      T* row = pass.scratch.data() + i * n;
      for (std::int64_t j = 0; j <= i; ++j) row[j] *= factor;
      top[i] = *std::max_element(row, row + i + 1);
      for (std::int64_t j = 0; j <= i; ++j) row[j] = std::exp(row[j] - top[i]);
      const T sum = fixed_sum(row, i + 1);
      top[n + i] = std::log(sum);
      for (std::int64_t j = 0; j <= i; ++j) row[j] /= sum;
      std::fill(row + i + 1, row + n, T(0));
    }
    columns(pass.y.data() + head.y, n, size, width_).noalias() =
        p * columns(x + 2 * width_, n, size, 3 * width_);
  }
}

template <typename T>
void CausalAttention<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                        std::span<T> dx) const {
  if (pass.device != nullptr) {
    return pass.device->attention_back({pass.rows, positions_, width_, heads_}, pass.x, pass.saved,
                                       dy, pass.scratch, dx);
  }
  const std::int64_t n = positions_;
  const std::int64_t size = width_ / heads_;
  const std::int64_t stride = 3 * width_;
  const T factor = T(1) / std::sqrt(static_cast<T>(size));
  auto p = matrix(pass.scratch.data(), n, n);
  auto ds = matrix(pass.scratch.data() + n * n, n, n);
  for (std::int64_t number = 0; number < pass.rows * heads_; ++number) {
    const Head<T> head(number, n, width_, heads_);
    const T* x = pass.x.data() + head.x;
    T* d = dx.data() + head.x;
    const auto q = columns(x, n, size, stride);
    const auto k = columns(x + width_, n, size, stride);
    const auto v = columns(x + 2 * width_, n, size, stride);
    const auto out = columns(dy.data() + head.y, n, size, width_);
    p.noalias() = q * k.transpose();
    ds.noalias() = out * v.transpose();
    const T* top = pass.saved.data() + head.saved;
    for (std::int64_t i = 0; i < n; ++i) {
      T* row = p.data() + i * n;
      T* change = ds.data() + i * n;
      for (std::int64_t j = 0; j <= i; ++j) {
        row[j] = std::exp(row[j] * factor - top[i] - top[n + i]);
      }
      const T mean = fixed_sum_of<T>(i + 1, [=](std::int64_t j) { return row[j] * change[j]; });
      for (std::int64_t j = 0; j <= i; ++j) change[j] = row[j] * (change[j] - mean) * factor;
      std::fill(row + i + 1, row + n, T(0));
      std::fill(change + i + 1, change + n, T(0));
    }
    columns(d, n, size, stride).noalias() = ds * k;
    columns(d + width_, n, size, stride).noalias() = ds.transpose() * q;
    columns(d + 2 * width_, n, size, stride).noalias() = p.transpose() * out;
  }
}

template class CausalAttention<float>;
template class CausalAttention<double>;

}  // namespace gradwire
