#include "trainer/layers/parallel/vocabulary_embedding.h"

#include <algorithm>

#include "trainer/layers/block_part.h"
#include "trainer/layers/parallel/sequence_order.h"
#include "trainer/layers/rows.h"

namespace gradwire {

template <typename T>
ParameterTable VocabularyEmbedding<T>::parameters() const {
  ParameterTable table = Embedding<T>(shape_).parameters();
  table[0].box = TensorBox::of(table[0].shape).cut(0, here_);
  table[0].shape = Shape::matrix(here_.size(), shape_.width);
  table[1].offset = token_elems();
  return table;
}

// All positions, in the order of samples and in that of ranks.
template <typename T>
std::int64_t VocabularyEmbedding<T>::scratch_elems(std::int64_t rows, MemorySpace /*where*/) const {
  return share_.sequence ? 2 * whole_lines<T>(elems(rows)) : 0;
}

template <typename T>
void VocabularyEmbedding<T>::look_up(const LayerPass<T>& pass, std::span<T> y) const {
  const std::int64_t width = shape_.width;
  if (pass.device != nullptr) {
    return pass.device->look_up(pass.x, here_.begin, width, part_of(pass.params, 0, token_elems()),
                                y);
  }
  for (std::int64_t i = 0; i < pass.rows * shape_.positions; ++i) {
    const auto token = static_cast<std::int64_t>(pass.x.data()[i]);
    T* const to = y.data() + i * width;
    if (token < here_.begin || token >= here_.end) {
      std::fill_n(to, width, T(0));
    } else {
      std::copy_n(pass.params.data() + (token - here_.begin) * width, width, to);
    }
  }
}

template <typename T>
void VocabularyEmbedding<T>::forward(const LayerPass<T>& pass) const {
  if (share_.sequence) {
    const std::span<T> whole = part_of(pass.scratch, 0, elems(pass.rows));
    const std::span<T> ordered =
        part_of(pass.scratch, whole_lines<T>(elems(pass.rows)), elems(pass.rows));
    look_up(pass, whole);
    to_rank_order<T>(pass.device, whole, pass.rows, share_.ranks, ordered);
    pass.peers->start_scatter_sum(std::span<const T>(ordered), pass.y);
  } else {
    look_up(pass, pass.y);
    pass.peers->start_sum(pass.y);
  }
  pass.peers->await();
  add_row<T>(pass.device, own_positions(pass.params), pass.y);
}

template <typename T>
std::span<const T> VocabularyEmbedding<T>::gathered(const LayerPass<T>& pass,
                                                    std::span<const T> dy) const {
  if (!share_.sequence) return dy;
  const std::span<T> ordered = part_of(pass.scratch, 0, elems(pass.rows));
  const std::span<T> whole =
      part_of(pass.scratch, whole_lines<T>(elems(pass.rows)), elems(pass.rows));
  pass.peers->start_gather(dy, ordered);
  pass.peers->await();
  to_sample_order<T>(pass.device, ordered, pass.rows, share_.ranks, whole);
  return whole;
}

template <typename T>
void VocabularyEmbedding<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                             std::span<T> grads) const {
  const std::span<const T> whole = gathered(pass, dy);
  // Of positions that other ranks have nothing is here.
  if (share_.sequence) fill_zeros(pass.device, part_of(grads, token_elems(), position_elems()));
  sum_rows<T>(pass.device, dy, own_positions(grads));
  add_tokens(pass, whole, part_of(grads, 0, token_elems()));
}

// Of the tokens that are here, in the order of places.
template <typename T>
void VocabularyEmbedding<T>::add_tokens(const LayerPass<T>& pass, std::span<const T> dy,
                                        std::span<T> tokens) const {
  const std::int64_t width = shape_.width;
  if (pass.device != nullptr) {
    return pass.device->look_up_params(pass.x, here_.begin, width, dy, tokens);
  }
  std::fill(tokens.begin(), tokens.end(), T(0));
  for (std::int64_t i = 0; i < pass.rows * shape_.positions; ++i) {
    const auto token = static_cast<std::int64_t>(pass.x.data()[i]);
    if (token < here_.begin || token >= here_.end) continue;
    T* const row = tokens.data() + (token - here_.begin) * width;
    for (std::int64_t k = 0; k < width; ++k) {
      row[k] += dy[static_cast<std::size_t>(i * width + k)];
    }
  }
}

template <typename T>
void VocabularyEmbedding<T>::backward_input(const LayerPass<T>& pass, std::span<const T> /*dy*/,
                                            std::span<T> dx) const {
  fill_zeros(pass.device, dx);
}

template class VocabularyEmbedding<float>;
template class VocabularyEmbedding<double>;

}  // namespace gradwire
