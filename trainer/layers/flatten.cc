#include "trainer/layers/flatten.h"

#include <algorithm>

namespace gradwire {

template <typename T>
void Flatten<T>::forward(const LayerPass<T>& pass) const {
  if (pass.device != nullptr) return pass.device->copy(pass.x, pass.y);
  std::copy(pass.x.begin(), pass.x.end(), pass.y.begin());
}

template <typename T>
void Flatten<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                std::span<T> dx) const {
  if (pass.device != nullptr) return pass.device->copy(dy, dx);
  std::copy(dy.begin(), dy.end(), dx.begin());
}

template class Flatten<float>;
template class Flatten<double>;

}  // namespace gradwire
