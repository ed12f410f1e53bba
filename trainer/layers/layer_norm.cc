#include "trainer/layers/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "trainer/layers/fixed_sum.h"

namespace gradwire {

template <typename T>
ParameterTable LayerNorm<T>::parameters() const {
  const std::int64_t n = shape_.width;
  return {{"weight", Shape::vector(n), 1, 0, {Init::Kind::kConstant, 1}},
          {"bias", Shape::vector(n), 1, n, {Init::Kind::kConstant, 0}}};
}

template <typename T>
void LayerNorm<T>::forward(const LayerPass<T>& pass) const {
  if (pass.device != nullptr) {
    return pass.device->layer_norm(shape_.width, pass.params, pass.x, pass.saved, pass.y);
  }
  const std::int64_t n = shape_.width;
  const T* weight = pass.params.data();
  const T* bias = weight + n;
  for (std::int64_t p = 0; p < pass.rows * positions(); ++p) {
    const T* x = pass.x.data() + p * n;
    T* y = pass.y.data() + p * n;
    const double mean =
        fixed_sum_of<double>(n, [x](std::int64_t i) { return double(x[i]); }) / double(n);
    const double variance = fixed_sum_of<double>(n,
                                                 [x, mean](std::int64_t i) {
                                                   const double off = double(x[i]) - mean;
                                                   return off * off;
                                                 }) /
                            double(n);
    const auto m = static_cast<T>(mean);
    const auto scale = static_cast<T>(1 / std::sqrt(variance + kEpsilon));
    pass.saved.data()[2 * p] = m;
    pass.saved.data()[2 * p + 1] = scale;
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - m) * scale * weight[i] + bias[i];
  }
}

template <typename T>
void LayerNorm<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                   std::span<T> grads) const {
  if (pass.device != nullptr) {
    return pass.device->layer_norm_params(shape_.width, pass.saved, pass.x, dy, grads);
  }
  const std::int64_t n = shape_.width;
  std::fill(grads.begin(), grads.end(), T(0));
  T* weight = grads.data();
  T* bias = weight + n;
  for (std::int64_t p = 0; p < pass.rows * positions(); ++p) {
    const T* x = pass.x.data() + p * n;
    const T* d = dy.data() + p * n;
    const T m = pass.saved.data()[2 * p];
    const T scale = pass.saved.data()[2 * p + 1];
    for (std::int64_t i = 0; i < n; ++i) {
      weight[i] += d[i] * ((x[i] - m) * scale);
      bias[i] += d[i];
    }
  }
}

template <typename T>
void LayerNorm<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                  std::span<T> dx) const {
  if (pass.device != nullptr) {
    return pass.device->layer_norm_back(shape_.width, pass.params, pass.saved, pass.x, dy, dx);
  }
  const std::int64_t n = shape_.width;
  const T* weight = pass.params.data();
  for (std::int64_t p = 0; p < pass.rows * positions(); ++p) {
    const T* x = pass.x.data() + p * n;
    const T* d = dy.data() + p * n;
    T* out = dx.data() + p * n;
    const T m = pass.saved.data()[2 * p];
    const T scale = pass.saved.data()[2 * p + 1];
    const auto mean_g = static_cast<T>(
        fixed_sum_of<double>(n, [=](std::int64_t i) { return double(d[i] * weight[i]); }) /
        double(n));
    const auto mean_gz = static_cast<T>(
        fixed_sum_of<double>(
            n, [=](std::int64_t i) { return double(d[i] * weight[i] * ((x[i] - m) * scale)); }) /
        double(n));
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = scale * (d[i] * weight[i] - mean_g - (x[i] - m) * scale * mean_gz);
    }
  }
}

template class LayerNorm<float>;
template class LayerNorm<double>;

}  // namespace gradwire
