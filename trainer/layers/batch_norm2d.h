// Every channel with mean 0 and variance 1 over the micro-batch, then scaled and shifted.
// Source: Ioffe, Szegedy, "Batch normalization", ICML 2015, algorithm 1; running statistics once
// per step from all its micro-batches: Kim et al., "torchgpipe", arXiv:2004.09910, 2020 (deferred).
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

// x, y: (rows, channels, h, w); weight and bias: (channels). With mean m and (biased) variance v of
// a channel over the n = rows h w values of the micro-batch, z = (x - m) / sqrt(v + epsilon):
//
//   y = weight z + bias
//   dweight = sum of dy z      dbias = sum of dy
//   dx = weight / sqrt(v + epsilon) (dy - (dbias + z dweight) / n)
//
// Kept from forward: m and 1 / sqrt(v + epsilon) per channel. Sums run in double, each plane in
// fixed order, planes from the first row to the last.
// Statistics: n, then per channel the sum of x and of x^2. Buffers: running_mean and running_var,
// which kEvaluate uses in place of m and v; a step moves them by kMomentum towards its own mean and
// unbiased variance.
template <typename T>
class BatchNorm2d final : public Layer<T> {
 public:
  static constexpr double kEpsilon = 1e-5;
  static constexpr double kMomentum = 0.1;

  explicit BatchNorm2d(SampleShape shape) : shape_(shape) {}

  SampleShape output() const override { return shape_; }
  ParameterTable parameters() const override;
  ParameterTable buffers() const override;
  std::int64_t statistics_elems() const override { return 1 + 2 * shape_.channels; }
  std::int64_t saved_elems(std::int64_t /*rows*/) const override { return 2 * shape_.channels; }
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;
  void commit(std::span<const double> statistics, std::span<T> buffers) const override;

 private:
  struct Sums {
    double dy = 0;
    double dy_z = 0;
  };
  std::int64_t plane() const { return shape_.height * shape_.width; }
  // The sum over rows of term(index into x), for one channel.
  template <typename Term>
  double channel_sum(std::int64_t rows, std::int64_t channel, Term term) const;
  void measure(const LayerPass<T>& pass) const;
  void forward_there(const LayerPass<T>& pass) const;
  Sums gradient_sums(const LayerPass<T>& pass, std::span<const T> dy, std::int64_t channel) const;

  SampleShape shape_;
};

}  // namespace gradwire
