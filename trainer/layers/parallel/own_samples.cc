#include "trainer/layers/parallel/own_samples.h"

#include <algorithm>

#include "trainer/layers/block_part.h"

namespace gradwire {

template <typename T>
void OwnSamples<T>::forward(const LayerPass<T>& pass) const {
  const Range own = equal_part(pass.rows, share_.ranks, share_.rank);
  const std::span<const T> x =
      part_of(pass.x, own.begin * shape_.elems(), own.size() * shape_.elems());
  std::copy(x.begin(), x.end(), pass.y.begin());
}

template <typename T>
void OwnSamples<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                   std::span<T> dx) const {
  pass.peers->start_gather(dy, dx);
}

template <typename T>
void OwnSamples<T>::finish_input(const LayerPass<T>& pass, std::span<const T> /*dy*/,
                                 std::span<T> /*dx*/) const {
  pass.peers->await();
}

template class OwnSamples<float>;
template class OwnSamples<double>;

}  // namespace gradwire
