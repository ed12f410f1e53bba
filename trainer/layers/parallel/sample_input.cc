#include "trainer/layers/parallel/sample_input.h"

#include <algorithm>

#include "trainer/layers/block_part.h"

namespace gradwire {

template <typename T>
std::int64_t SampleInput<T>::whole_elems(std::int64_t rows) const {
  return whole_lines<T>(all_rows(rows) * width_);
}

template <typename T>
LayerPass<T> SampleInput<T>::inner(const LayerPass<T>& pass) const {
  const std::int64_t whole = whole_elems(pass.rows);
  LayerPass<T> own = pass;
  own.rows = pass.all_rows;
  own.context.first_sample -= equal_part(pass.all_rows, share_.ranks, share_.rank).begin;
  own.x = part_of(pass.saved, 0, pass.all_rows * width_);
  own.saved = part_of(pass.saved, whole, inside_->saved_elems(pass.all_rows));
  own.stash = part_of(pass.stash, whole, inside_->stash_elems(pass.all_rows));
  return own;
}

// Parts that overlap, in the last pass of an evaluation, are moved to where their samples are.
template <typename T>
void SampleInput<T>::forward(const LayerPass<T>& pass) const {
  const std::span<T> gathered = part_of(pass.saved, 0, all_rows(pass.rows) * width_);
  pass.peers->start_gather(pass.x, gathered);
  pass.peers->await();
  for (int rank = 0; rank < share_.ranks; ++rank) {
    const std::int64_t place = equal_part(pass.all_rows, share_.ranks, rank).begin;
    const std::int64_t arrived = part_begin(0, share_.ranks, rank, pass.rows);
    if (place == arrived) continue;
    const std::span<T> part = part_of(gathered, arrived * width_, pass.rows * width_);
    std::copy(part.begin(), part.end(), gathered.begin() + place * width_);
  }
  inside_->forward(inner(pass));
}

template <typename T>
void SampleInput<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                     std::span<T> grads) const {
  inside_->backward_params(inner(pass), dy, grads);
}

template <typename T>
void SampleInput<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                    std::span<T> dx) const {
  const LayerPass<T> own = inner(pass);
  const std::span<T> whole = part_of(pass.stash, 0, pass.all_rows * width_);
  inside_->backward_input(own, dy, whole);
  inside_->finish_input(own, dy, whole);
  pass.peers->start_scatter_sum(std::span<const T>(whole), dx);
}

template <typename T>
void SampleInput<T>::finish_input(const LayerPass<T>& pass, std::span<const T> /*dy*/,
                                  std::span<T> /*dx*/) const {
  pass.peers->await();
}

template class SampleInput<float>;
template class SampleInput<double>;

}  // namespace gradwire
