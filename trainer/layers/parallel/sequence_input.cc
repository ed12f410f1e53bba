#include "trainer/layers/parallel/sequence_input.h"

#include <algorithm>

#include "trainer/layers/block_part.h"
#include "trainer/layers/parallel/sequence_order.h"

namespace gradwire {

// Of several samples the ranks' parts are not what stands behind each other: they are put in order
// in scratch (forward), and in the stash (back), which nobody else writes to until they have
// arrived.
template <typename T>
std::int64_t SequenceInput<T>::scratch_elems(std::int64_t rows, MemorySpace where) const {
  return std::max(inside_->scratch_elems(rows, where), rows > 1 ? elems(rows) : 0);
}

template <typename T>
std::int64_t SequenceInput<T>::saved_elems(std::int64_t rows) const {
  return whole_lines<T>(elems(rows)) + inside_->saved_elems(rows);
}

template <typename T>
std::int64_t SequenceInput<T>::stash_elems(std::int64_t rows) const {
  return whole_lines<T>(elems(rows)) * (rows > 1 ? 2 : 1) + inside_->stash_elems(rows);
}

template <typename T>
LayerPass<T> SequenceInput<T>::inner(const LayerPass<T>& pass) const {
  const std::int64_t rows = pass.rows;
  LayerPass<T> own = pass;
  own.x = part_of(pass.saved, 0, elems(rows));
  own.saved = part_of(pass.saved, whole_lines<T>(elems(rows)), inside_->saved_elems(rows));
  own.stash = part_of(pass.stash, stash_elems(rows) - inside_->stash_elems(rows),
                      inside_->stash_elems(rows));
  return own;
}

template <typename T>
void SequenceInput<T>::forward(const LayerPass<T>& pass) const {
  const std::span<T> whole = part_of(pass.saved, 0, elems(pass.rows));
  const bool several = pass.rows > 1;
  const std::span<T> gathered = several ? part_of(pass.scratch, 0, elems(pass.rows)) : whole;
  pass.peers->start_gather(pass.x, gathered);
  pass.peers->await();
  if (several) to_sample_order<T>(pass.device, gathered, pass.rows, share_.ranks, whole);
  inside_->forward(inner(pass));
}

template <typename T>
void SequenceInput<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                       std::span<T> grads) const {
  const TimedSpan span(pass.peers->told(), TrainerSpan::Kind::kBackwardParams,
                       TrainerSpan::kUnderWay, "weights");
  inside_->backward_params(inner(pass), dy, grads);
}

template <typename T>
void SequenceInput<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                      std::span<T> dx) const {
  const LayerPass<T> own = inner(pass);
  const std::span<T> whole = part_of(pass.stash, 0, elems(pass.rows));
  inside_->backward_input(own, dy, whole);
  inside_->finish_input(own, dy, whole);
  std::span<T> ordered = whole;
  if (pass.rows > 1) {
    ordered = part_of(pass.stash, whole_lines<T>(elems(pass.rows)), elems(pass.rows));
    to_rank_order<T>(pass.device, whole, pass.rows, share_.ranks, ordered);
  }
  pass.peers->start_scatter_sum(std::span<const T>(ordered), dx);
}

template <typename T>
void SequenceInput<T>::finish_input(const LayerPass<T>& pass, std::span<const T> /*dy*/,
                                    std::span<T> /*dx*/) const {
  pass.peers->await();
}

template class SequenceInput<float>;
template class SequenceInput<double>;

}  // namespace gradwire
