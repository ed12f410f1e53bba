// A layer that reads all samples of a micro-batch where each rank has some, and of whose outputs
// each rank has some.
// Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv
// 1404.5997, 2014, section 4 (scheme a: the fully connected layers have the whole batch at once).
#pragma once

#include <memory>
#include <utility>

#include "trainer/layers/layer.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// x: this rank's samples of `width` features, gathered to all samples for the layer `inside`, and
// kept: the way back does not gather them again. y: all samples. dx is the sum of those of all
// peers at this rank's samples; backward_input() starts it, finish_input() awaits it.
template <typename T>
class SampleInput final : public Layer<T> {
 public:
  SampleInput(std::unique_ptr<Layer<T>> inside, std::int64_t width, const TensorShare& share)
      : inside_(std::move(inside)), width_(width), share_(share) {}

  SampleShape output() const override { return inside_->output(); }
  SampleRows sample_rows() const override { return SampleRows::kAll; }
  ParameterTable parameters() const override { return inside_->parameters(); }
  // `rows`: of x, as everywhere.
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace where) const override {
    return inside_->scratch_elems(all_rows(rows), where);
  }
  std::int64_t saved_elems(std::int64_t rows) const override {
    return whole_elems(rows) + inside_->saved_elems(all_rows(rows));
  }
  std::int64_t stash_elems(std::int64_t rows) const override {
    return whole_elems(rows) + inside_->stash_elems(all_rows(rows));
  }
  LayerCost cost() const override { return inside_->cost(); }
  Result<Placement> placement(const Placement& x,
                              std::span<const ParameterInfo> parameters) const override {
    GW_TRY(check_reads(x, {Placement::by_samples()}));
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
  // The samples of all ranks, of which each has `rows`, and room for them.
  std::int64_t all_rows(std::int64_t rows) const { return parts_elems(rows, share_.ranks); }
  std::int64_t whole_elems(std::int64_t rows) const;
  // What the layer inside sees.
  LayerPass<T> inner(const LayerPass<T>& pass) const;

  std::unique_ptr<Layer<T>> inside_;
  std::int64_t width_;
  TensorShare share_;
};

}  // namespace gradwire
