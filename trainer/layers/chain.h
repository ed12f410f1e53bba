// Several layers as one.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/layers/layer.h"

namespace gradwire {

// Each layer reads what the one before it wrote. Kept from forward: what flows between layers, and
// what each keeps. backward_input() leaves the derivatives between layers in the stash.
template <typename T>
class Chain final : public Layer<T> {
 public:
  explicit Chain(SampleShape in) : in_(in) {}
  // Its parameters are called "name.weight" and so on.
  void add(const std::string& name, std::unique_ptr<Layer<T>> layer);

  SampleShape output() const override {
    return links_.empty() ? in_ : links_.back().layer->output();
  }
  ParameterTable parameters() const override { return params_; }
  ParameterTable buffers() const override { return buffers_; }
  std::int64_t statistics_elems() const override { return statistics_; }
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace where) const override;
  std::int64_t saved_elems(std::int64_t rows) const override;
  std::int64_t stash_elems(std::int64_t rows) const override;
  LayerCost cost() const override;
  std::vector<LayerPart<T>> parts() const override;
  Result<Placement> placement(const Placement& x,
                              std::span<const ParameterInfo> parameters) const override;
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;
  void finish_input(const LayerPass<T>& pass, std::span<const T> dy,
                    std::span<T> dx) const override;
  void backward(const LayerPass<T>& pass, std::span<const T> dy, std::span<T> dx,
                std::span<T> grads) const override;
  void commit(std::span<const double> statistics, std::span<T> buffers) const override;

 private:
  struct Link {
    std::string name;
    std::unique_ptr<Layer<T>> layer;
    std::int64_t params = 0;  // offsets of its blocks
    std::int64_t buffers = 0;
    std::int64_t statistics = 0;
    std::int64_t params_elems = 0;
    std::int64_t buffers_elems = 0;
  };
  // Where one layer's values begin for a number of rows: in saved its own, then its output; in
  // stash its own, then the derivative by its output.
  struct Place {
    std::int64_t saved = 0;
    std::int64_t output = 0;
    std::int64_t stash = 0;
    std::int64_t delta = 0;
  };
  // Of layer `at`; of all of them together at the end.
  Place place(std::size_t at, std::int64_t rows) const;
  LayerPass<T> inner(const LayerPass<T>& pass, std::size_t at) const;
  std::span<const T> delta_after(const LayerPass<T>& pass, std::span<const T> dy,
                                 std::size_t at) const;
  std::span<T> delta_before(const LayerPass<T>& pass, std::span<T> dx, std::size_t at) const;
  void derive_params(const LayerPass<T>& pass, std::span<const T> dy, std::span<T> grads,
                     std::size_t at) const;

  SampleShape in_;
  std::vector<Link> links_;
  ParameterTable params_;
  ParameterTable buffers_;
  std::int64_t statistics_ = 0;
};

}  // namespace gradwire
