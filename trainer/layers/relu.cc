#include "trainer/layers/relu.h"

#include <cstddef>

namespace gradwire {

template <typename T>
void Relu<T>::forward(const LayerPass<T>& pass) const {
  if (pass.device != nullptr) return pass.device->relu(pass.x, pass.y);
  for (std::size_t i = 0; i < pass.x.size(); ++i) pass.y[i] = pass.x[i] < T(0) ? T(0) : pass.x[i];
}

template <typename T>
void Relu<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                             std::span<T> dx) const {
  if (pass.device != nullptr) return pass.device->relu_back(pass.x, dy, dx);
  for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = pass.x[i] <= T(0) ? T(0) : dy[i];
}

template class Relu<float>;
template class Relu<double>;

}  // namespace gradwire
