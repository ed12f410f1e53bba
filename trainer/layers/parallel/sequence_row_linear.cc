#include "trainer/layers/parallel/sequence_row_linear.h"

#include "trainer/layers/block_part.h"
#include "trainer/layers/parallel/sequence_order.h"
#include "trainer/layers/rows.h"

namespace gradwire {

template <typename T>
ParameterTable SequenceRowLinear<T>::parameters() const {
  ParameterTable table = row_.parameters();
  if (options_.bias) {
    table.push_back({"bias", Shape::vector(out_), inputs_.inputs, weight_elems()});
  }
  return table;
}

// Whole products, and of several samples the same in the order of ranks.
template <typename T>
std::int64_t SequenceRowLinear<T>::scratch_elems(std::int64_t rows, MemorySpace /*where*/) const {
  return rows > 1 ? 2 * whole_lines<T>(elems(rows)) : elems(rows);
}

template <typename T>
LayerPass<T> SequenceRowLinear<T>::of_weight(const LayerPass<T>& pass) const {
  LayerPass<T> own = pass;
  own.params = part_of(pass.params, 0, weight_elems());
  own.scratch = {};
  own.stash = {};
  return own;
}

template <typename T>
void SequenceRowLinear<T>::forward(const LayerPass<T>& pass) const {
  LayerPass<T> own = of_weight(pass);
  own.y = part_of(pass.scratch, 0, elems(pass.rows));
  row_.forward(own);
  std::span<T> ordered = own.y;
  if (pass.rows > 1) {
    ordered = part_of(pass.scratch, whole_lines<T>(elems(pass.rows)), elems(pass.rows));
    to_rank_order<T>(pass.device, own.y, pass.rows, share_.ranks, ordered);
  }
  pass.peers->start_scatter_sum(std::span<const T>(ordered), pass.y);
  pass.peers->await();
  if (options_.bias) add_row(pass.device, part_of(pass.params, weight_elems(), out_), pass.y);
}

template <typename T>
void SequenceRowLinear<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                          std::span<T> dx) const {
  const std::span<T> whole = part_of(pass.stash, 0, elems(pass.rows));
  const bool several = pass.rows > 1;
  const std::span<T> gathered = several ? part_of(pass.scratch, 0, elems(pass.rows)) : whole;
  pass.peers->start_gather(dy, gathered);
  pass.peers->await();
  if (several) to_sample_order<T>(pass.device, gathered, pass.rows, share_.ranks, whole);
  row_.backward_input(of_weight(pass), whole, dx);
}

template <typename T>
void SequenceRowLinear<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                           std::span<T> grads) const {
  row_.backward_params(of_weight(pass), part_of(pass.stash, 0, elems(pass.rows)),
                       part_of(grads, 0, weight_elems()));
  if (options_.bias) sum_rows(pass.device, dy, part_of(grads, weight_elems(), out_));
}

template class SequenceRowLinear<float>;
template class SequenceRowLinear<double>;

}  // namespace gradwire
