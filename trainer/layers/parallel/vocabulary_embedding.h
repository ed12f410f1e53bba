// An embedding whose vocabulary is divided among ranks.
// Source: Shoeybi et al., "Megatron-LM", arXiv 1909.08053, 2019, section 3.
#pragma once

#include "gradwire/schedule.h"
#include "trainer/layers/block_part.h"
#include "trainer/layers/embedding.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// As Embedding, of a table of which the tokens `here` are this rank's: the others' rows are 0 here,
// and y is the sum over peers, equal on all of them, plus the position, whose table each rank has
// as a whole. Parts may differ in size, so any vocabulary may be divided among any number of ranks.
template <typename T>
class VocabularyEmbedding final : public Layer<T> {
 public:
  // Under share.sequence y has this rank's positions alone, of which the gradient of `position` is
  // then, and backward_params() gathers dy.
  VocabularyEmbedding(EmbeddingShape shape, const TensorShare& share)
      : shape_(shape), share_(share), here_(share.part(shape.vocabulary)) {}

  SampleShape output() const override { return {positions_here().size(), 1, shape_.width}; }
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace where) const override;
  Result<Placement> placement(const Placement& x,
                              std::span<const ParameterInfo> parameters) const override {
    GW_TRY(check_reads(x, {Placement::invariant()}));
    const Placement y = share_.sequence ? Placement::by_positions() : Placement::invariant();
    GW_TRY(check_whole_parameters(y, parameters));
    return y;
  }
  ParameterTable parameters() const override;
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  std::int64_t token_elems() const { return here_.size() * shape_.width; }
  std::int64_t position_elems() const { return shape_.positions * shape_.width; }
  Range positions_here() const { return share_.stream(shape_.positions); }
  std::int64_t elems(std::int64_t rows) const { return rows * shape_.positions * shape_.width; }
  // Of parameters or their gradients: the rows of the positions that are here.
  template <typename E>
  std::span<E> own_positions(std::span<E> all) const {
    const Range here = positions_here();
    return part_of(all, token_elems() + here.begin * shape_.width, here.size() * shape_.width);
  }
  // The rows of tokens that are here, 0 for the others.
  void look_up(const LayerPass<T>& pass, std::span<T> y) const;
  void add_tokens(const LayerPass<T>& pass, std::span<const T> dy, std::span<T> tokens) const;
  // Of all positions.
  std::span<const T> gathered(const LayerPass<T>& pass, std::span<const T> dy) const;

  EmbeddingShape shape_;
  TensorShare share_;
  Range here_;
};

}  // namespace gradwire
