// A branch around which its input flows on.
// Source: He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016, eq. 1, 2.
#pragma once

#include <memory>

#include "trainer/layers/layer.h"

namespace gradwire {

// y = branch(x) + shortcut(x). Parameters are called as the branch calls them, the shortcut's
// "shortcut.weight" and so on.
template <typename T>
class Residual final : public Layer<T> {
 public:
  // `shortcut` may be null: x itself, which then has the shape of the branch's output.
  Residual(SampleShape in, std::unique_ptr<Layer<T>> branch,
           std::unique_ptr<Layer<T>> shortcut = nullptr);

  SampleShape output() const override { return branch_->output(); }
  ParameterTable parameters() const override;
  ParameterTable buffers() const override;
  std::int64_t statistics_elems() const override;
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
  std::int64_t inner_scratch(std::int64_t rows, MemorySpace where) const;
  LayerPass<T> of_branch(const LayerPass<T>& pass) const;
  LayerPass<T> of_shortcut(const LayerPass<T>& pass) const;
  // Room for what the shortcut adds, behind the scratch of both.
  std::span<T> addend(const LayerPass<T>& pass, std::int64_t elems) const;

  SampleShape in_;
  std::unique_ptr<Layer<T>> branch_;
  std::unique_ptr<Layer<T>> shortcut_;
  std::int64_t params_;  // of the branch
  std::int64_t buffers_;
};

}  // namespace gradwire
