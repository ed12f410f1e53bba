#include "trainer/layers/parallel/row_linear.h"

#include "trainer/layers/block_part.h"
#include "trainer/layers/rows.h"

namespace gradwire {

template <typename T>
ParameterTable RowLinear<T>::parameters() const {
  const Shape whole = Shape::matrix(out_, share_.inputs);
  ParameterTable table = linear_.parameters();
  table[0].fan_in = share_.inputs;
  table[0].box = TensorBox::of(whole).cut(1, share_.here);
  if (options_.bias) {
    table.push_back({"bias", Shape::vector(out_), share_.inputs, weight_elems()});
  }
  return table;
}

template <typename T>
LayerPass<T> RowLinear<T>::of_weight(const LayerPass<T>& pass) const {
  LayerPass<T> own = pass;
  own.params = part_of(pass.params, 0, weight_elems());
  return own;
}

template <typename T>
void RowLinear<T>::forward(const LayerPass<T>& pass) const {
  linear_.forward(of_weight(pass));
  if (sum_ == Sum::kElsewhere) return;
  pass.peers->start_sum(pass.y);
  pass.peers->await();
  if (options_.bias) add_row(pass.device, part_of(pass.params, weight_elems(), out_), pass.y);
}

template <typename T>
void RowLinear<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                   std::span<T> grads) const {
  linear_.backward_params(of_weight(pass), dy, part_of(grads, 0, weight_elems()));
  if (options_.bias) sum_rows(pass.device, dy, part_of(grads, weight_elems(), out_));
}

template class RowLinear<float>;
template class RowLinear<double>;

}  // namespace gradwire
