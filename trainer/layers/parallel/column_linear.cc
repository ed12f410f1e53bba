#include "trainer/layers/parallel/column_linear.h"

namespace gradwire {

template <typename T>
ParameterTable ColumnLinear<T>::parameters() const {
  const bool grouped = share_.groups > 1;
  const int divided = grouped ? 1 : 0;  // the dimension
  const std::int64_t each = share_.outputs / share_.groups;
  const auto box = [&](const Shape& whole, const Shape& in_groups) {
    return TensorBox::of(whole, grouped ? in_groups : whole).cut(divided, share_.here);
  };
  ParameterTable table = linear_.parameters();
  table[0].box = box(Shape::matrix(share_.outputs, in_), Shape{{share_.groups, each, in_, 1}, 3});
  if (has_bias_) {
    table[1].box = box(Shape::vector(share_.outputs), Shape::matrix(share_.groups, each));
  }
  return table;
}

template class ColumnLinear<float>;
template class ColumnLinear<double>;

}  // namespace gradwire
