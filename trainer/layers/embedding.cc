#include "trainer/layers/embedding.h"

#include <algorithm>

#include "trainer/layers/block_part.h"
#include "trainer/layers/matrix_map.h"

namespace gradwire {

template <typename T>
ParameterTable Embedding<T>::parameters() const {
  const auto [vocabulary, positions, width] = shape_;
  const Init init{Init::Kind::kNormal, 0.02};
  return {{"token", Shape::matrix(vocabulary, width), width, 0, init},
          {"position", Shape::matrix(positions, width), width, vocabulary * width, init}};
}

template <typename T>
void Embedding<T>::forward(const LayerPass<T>& pass) const {
  if (pass.device != nullptr) {
    const std::int64_t words = shape_.vocabulary * shape_.width;
    return pass.device->embed(pass.x, shape_.positions, shape_.width,
                              part_of(pass.params, 0, words),
                              part_of(pass.params, words, shape_.positions * shape_.width), pass.y);
  }
  const auto [vocabulary, positions, width] = shape_;
  for (std::int64_t i = 0; i < pass.rows * positions; ++i) {
    const T* token = pass.params.data() + static_cast<std::int64_t>(pass.x.data()[i]) * width;
    const T* position = pass.params.data() + (vocabulary + i % positions) * width;
    T* y = pass.y.data() + i * width;
    for (std::int64_t k = 0; k < width; ++k) y[k] = token[k] + position[k];
  }
}

template <typename T>
void Embedding<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                   std::span<T> grads) const {
  if (pass.device != nullptr) {
    const std::int64_t words = shape_.vocabulary * shape_.width;
    return pass.device->embed_params(pass.x, shape_.width, dy, part_of(grads, 0, words),
                                     part_of(grads, words, shape_.positions * shape_.width));
  }
  const auto [vocabulary, positions, width] = shape_;
  std::fill(grads.begin(), grads.end(), T(0));
  for (std::int64_t i = 0; i < pass.rows * positions; ++i) {
    T* token = grads.data() + static_cast<std::int64_t>(pass.x.data()[i]) * width;
    T* position = grads.data() + (vocabulary + i % positions) * width;
    const T* d = dy.data() + i * width;
    for (std::int64_t k = 0; k < width; ++k) {
      token[k] += d[k];
      position[k] += d[k];
    }
  }
}

template <typename T>
void Embedding<T>::backward_input(const LayerPass<T>& pass, std::span<const T> /*dy*/,
                                  std::span<T> dx) const {
  if (pass.device != nullptr) return pass.device->fill_zeros(dx);
  std::fill(dx.begin(), dx.end(), T(0));
}

template <typename T>
void TiedHead<T>::forward(const LayerPass<T>& pass) const {
  const auto [vocabulary, positions, width] = shape_;
  if (pass.device != nullptr) {
    return pass.device->product({pass.x.data(), pass.rows * positions, width},
                                {pass.params.data(), vocabulary, width, true}, pass.y.data());
  }
  const auto x = matrix(pass.x.data(), pass.rows * positions, width);
  const auto token = matrix(pass.params.data(), vocabulary, width);
  matrix(pass.y.data(), pass.rows * positions, vocabulary).noalias() = x * token.transpose();
}

template <typename T>
void TiedHead<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                  std::span<T> grads) const {
  const auto [vocabulary, positions, width] = shape_;
  if (pass.device != nullptr) {
    return pass.device->product({dy.data(), pass.rows * positions, vocabulary, true},
                                {pass.x.data(), pass.rows * positions, width}, grads.data());
  }
  const auto x = matrix(pass.x.data(), pass.rows * positions, width);
  const auto d = matrix(dy.data(), pass.rows * positions, vocabulary);
  matrix(grads.data(), vocabulary, width).noalias() = d.transpose() * x;
}

template <typename T>
void TiedHead<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                 std::span<T> dx) const {
  const auto [vocabulary, positions, width] = shape_;
  if (pass.device != nullptr) {
    return pass.device->product({dy.data(), pass.rows * positions, vocabulary},
                                {pass.params.data(), vocabulary, width}, dx.data());
  }
  const auto d = matrix(dy.data(), pass.rows * positions, vocabulary);
  const auto token = matrix(pass.params.data(), vocabulary, width);
  matrix(dx.data(), pass.rows * positions, width).noalias() = d * token;
}

template class Embedding<float>;
template class Embedding<double>;
template class TiedHead<float>;
template class TiedHead<double>;

}  // namespace gradwire
