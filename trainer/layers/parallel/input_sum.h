// A layer that reads what is equal on all ranks, and of whose outputs each rank has some.
// Source: Shoeybi et al., "Megatron-LM", arXiv 1909.08053, 2019, section 3 (operator f).
#pragma once

#include <memory>
#include <utility>

#include "trainer/layers/layer.h"

namespace gradwire {

// The layer `inside`, whose dx is the sum of those of all peers: each has the derivative by way of
// its own outputs. backward_input() starts the sum, finish_input() awaits it, so that it travels
// while the parameters' gradients are computed. Forward exchanges nothing.
template <typename T>
class InputSum final : public Layer<T> {
 public:
  explicit InputSum(std::unique_ptr<Layer<T>> inside) : inside_(std::move(inside)) {}

  SampleShape output() const override { return inside_->output(); }
  ParameterTable parameters() const override { return inside_->parameters(); }
  ParameterTable buffers() const override { return inside_->buffers(); }
  std::int64_t statistics_elems() const override { return inside_->statistics_elems(); }
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace where) const override {
    return inside_->scratch_elems(rows, where);
  }
  std::int64_t saved_elems(std::int64_t rows) const override { return inside_->saved_elems(rows); }
  std::int64_t stash_elems(std::int64_t rows) const override { return inside_->stash_elems(rows); }
  LayerCost cost() const override { return inside_->cost(); }
  Result<Placement> placement(const Placement& x,
                              std::span<const ParameterInfo> parameters) const override {
    GW_TRY(check_reads(x, {Placement::invariant()}));
    return inside_->placement(Placement::replicated(), parameters);
  }
  void forward(const LayerPass<T>& pass) const override { inside_->forward(pass); }
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override {
    const TimedSpan span(pass.peers->told(), TrainerSpan::Kind::kBackwardParams,
                         TrainerSpan::kUnderWay, "weights");
    inside_->backward_params(pass, dy, grads);
  }
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override {
    inside_->backward_input(pass, dy, dx);
    inside_->finish_input(pass, dy, dx);
    pass.peers->start_sum(dx);
  }
  void finish_input(const LayerPass<T>& pass, std::span<const T> /*dy*/,
                    std::span<T> /*dx*/) const override {
    pass.peers->await();
  }
  void commit(std::span<const double> statistics, std::span<T> buffers) const override {
    inside_->commit(statistics, buffers);
  }

 private:
  std::unique_ptr<Layer<T>> inside_;
};

}  // namespace gradwire
