#include "trainer/layers/linear.h"

#include "trainer/layers/block_part.h"
#include "trainer/layers/few_rows.h"
#include "trainer/layers/matrix_map.h"
#include "trainer/layers/rows.h"

namespace gradwire {

template <typename T>
ParameterTable Linear<T>::parameters() const {
  ParameterTable table{{"weight", Shape::matrix(out_, in_), in_, 0}};
  if (options_.bias) table.push_back({"bias", Shape::vector(out_), in_, out_ * in_});
  return table;
}

template <typename T>
void Linear<T>::forward_there(const LayerPass<T>& pass) const {
  const std::int64_t rows = pass.rows * options_.positions;
  pass.device->product({pass.x.data(), rows, in_}, {pass.params.data(), out_, in_, true},
                       pass.y.data());
  if (options_.bias) pass.device->add_row(part_of(pass.params, out_ * in_, out_), pass.y);
}

template <typename T>
void Linear<T>::backward_params_there(const LayerPass<T>& pass, std::span<const T> dy,
                                      std::span<T> grads) const {
  const std::int64_t rows = pass.rows * options_.positions;
  pass.device->product({dy.data(), rows, out_, true}, {pass.x.data(), rows, in_}, grads.data());
  if (options_.bias) pass.device->sum_rows(dy, part_of(grads, out_ * in_, out_));
}

template <typename T>
void Linear<T>::forward(const LayerPass<T>& pass) const {
  if (pass.device != nullptr) return forward_there(pass);
  const std::int64_t rows = pass.rows * options_.positions;
  const LinearSize size{rows, in_, out_};
  if (has_few_rows(size)) {
    rows_forward(size, pass.x.data(), pass.params.data(), pass.y.data());
  } else {
    const auto x = matrix(pass.x.data(), rows, in_);
    const auto weight = matrix(pass.params.data(), out_, in_);
    matrix(pass.y.data(), rows, out_).noalias() = x * weight.transpose();
  }
  if (options_.bias) add_row<T>(nullptr, part_of(pass.params, out_ * in_, out_), pass.y);
}

template <typename T>
void Linear<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                std::span<T> grads) const {
  if (pass.device != nullptr) return backward_params_there(pass, dy, grads);
  const std::int64_t rows = pass.rows * options_.positions;
  const LinearSize size{rows, in_, out_};
  if (has_few_rows(size)) {
    rows_backward_weight(size, dy.data(), pass.x.data(), grads.data());
  } else {
    const auto x = matrix(pass.x.data(), rows, in_);
    matrix(grads.data(), out_, in_).noalias() = matrix(dy.data(), rows, out_).transpose() * x;
  }
  if (options_.bias) sum_rows<T>(nullptr, dy, part_of(grads, out_ * in_, out_));
}

template <typename T>
void Linear<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                               std::span<T> dx) const {
  const std::int64_t rows = pass.rows * options_.positions;
  if (pass.device != nullptr) {
    return pass.device->product({dy.data(), rows, out_}, {pass.params.data(), out_, in_},
                                dx.data());
  }
  const LinearSize size{rows, in_, out_};
  if (has_few_rows(size)) {
    rows_backward_input(size, dy.data(), pass.params.data(), dx.data());
    return;
  }
  const auto weight = matrix(pass.params.data(), out_, in_);
  matrix(dx.data(), rows, in_).noalias() = matrix(dy.data(), rows, out_) * weight;
}

template class Linear<float>;
template class Linear<double>;

}  // namespace gradwire
