#include "trainer/layers/gelu.h"

#include <cmath>
#include <cstddef>
#include <numbers>

namespace gradwire {
namespace {

template <typename T>
T phi_below(T x) {
  return T(0.5) * (T(1) + std::erf(x * (T(1) / std::numbers::sqrt2_v<T>)));
}

}  // namespace

template <typename T>
void Gelu<T>::forward(const LayerPass<T>& pass) const {
  if (pass.device != nullptr) return pass.device->gelu(pass.x, pass.y);
  for (std::size_t i = 0; i < pass.x.size(); ++i) pass.y[i] = pass.x[i] * phi_below(pass.x[i]);
}

template <typename T>
void Gelu<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                             std::span<T> dx) const {
  if (pass.device != nullptr) return pass.device->gelu_back(pass.x, dy, dx);
  constexpr T kPeak = std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>;
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const T x = pass.x[i];
    dx[i] = dy[i] * (phi_below(x) + x * kPeak * std::exp(T(-0.5) * x * x));
  }
}

template class Gelu<float>;
template class Gelu<double>;

}  // namespace gradwire
