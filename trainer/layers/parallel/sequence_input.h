// A layer that reads whole sequences where each rank has a part of the positions, and of whose
// outputs each rank has some.
// Source: Korthikanti et al., "Reducing activation recomputation in large transformer models",
// MLSys 2023, section 4.2.2 (operator g).
#pragma once

#include <memory>
#include <utility>

#include "trainer/layers/layer.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// x: (rows, positions / ranks, width) of this rank's positions, gathered to (rows, positions,
// width) for the layer `inside`, and kept: the way back does not gather it again. dx is the sum of
// those of all peers at this rank's positions; backward_input() starts it, finish_input() awaits
// it.
template <typename T>
class SequenceInput final : public Layer<T> {
 public:
  // `whole`: of inside's input, (positions, 1, width); the ranks divide the positions.
  SequenceInput(std::unique_ptr<Layer<T>> inside, SampleShape whole, const TensorShare& share)
      : inside_(std::move(inside)), whole_(whole), share_(share) {}

  SampleShape output() const override { return inside_->output(); }
  ParameterTable parameters() const override { return inside_->parameters(); }
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace where) const override;
  std::int64_t saved_elems(std::int64_t rows) const override;
  std::int64_t stash_elems(std::int64_t rows) const override;
  LayerCost cost() const override { return inside_->cost(); }
  Result<Placement> placement(const Placement& x,
                              std::span<const ParameterInfo> parameters) const override {
    GW_TRY(check_reads(x, {Placement::by_positions()}));
    return inside_->placement(Placement::replicated(), parameters);
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;
  void finish_input(const LayerPass<T>& pass, std::span<const T> dy,
                    std::span<T> dx) const override;

 private:
  std::int64_t elems(std::int64_t rows) const { return rows * whole_.elems(); }
  // What the layer inside sees.
  LayerPass<T> inner(const LayerPass<T>& pass) const;

  std::unique_ptr<Layer<T>> inside_;
  SampleShape whole_;
  TensorShare share_;
};

}  // namespace gradwire
