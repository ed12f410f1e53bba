// Every channel with mean 0 and variance 1 over the micro-batch, then scaled and shifted.
// Source: Ioffe, Szegedy, "Batch normalization", ICML 2015, algorithm 1; running statistics once
// per step from all its micro-batches: Kim et al., "torchgpipe", arXiv:2004.09910, 2020 (deferred).
// Variances of parts joined: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for
// computing sample variances", Stanford STAN-CS-79-773, 1979, equation 2.1.
#pragma once

#include <utility>

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
//
// Where ranks divide the micro-batch's samples, or images' tiles, each has as many values of a
// channel: forward gathers every rank's sum and its squares around its own mean, backward_input()
// adds up both of its sums, 2 channels values in double each, and all ranks have the same m, v and
// statistics. Gradients of weight and bias are of a rank's own values.
template <typename T>
class BatchNorm2d final : public Layer<T> {
 public:
  static constexpr double kEpsilon = 1e-5;
  static constexpr double kMomentum = 0.1;

  // shape: of what a rank has. parts: ranks among which the values of a channel lie.
  explicit BatchNorm2d(SampleShape shape, int parts = 1) : shape_(shape), parts_(parts) {}

  SampleShape output() const override { return shape_; }
  ParameterTable parameters() const override;
  ParameterTable buffers() const override;
  std::int64_t statistics_elems() const override { return 1 + 2 * shape_.channels; }
  std::int64_t saved_elems(std::int64_t /*rows*/) const override { return 2 * shape_.channels; }
  std::int64_t scratch_elems(std::int64_t /*rows*/, MemorySpace /*where*/) const override {
    constexpr auto kPerDouble = static_cast<std::int64_t>(sizeof(double) / sizeof(T));
    return parts_ == 1 ? 0 : (parts_ + 1) * 2 * shape_.channels * kPerDouble;
  }
  Result<Placement> placement(const Placement& x,
                              std::span<const ParameterInfo> parameters) const override {
    if (parts_ == 1) {
      GW_TRY(check_reads(x, {Placement::invariant()}));
    } else {
      GW_TRY(check_reads(x, {Placement::by_samples(), Placement::by_tiles()}));
    }
    GW_TRY(check_whole_parameters(x, parameters));
    return x;
  }
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
  // Of a channel: the sum of its values, and their squares around the mean.
  struct Moments {
    double sum = 0;
    double around = 0;
  };
  double count(const LayerPass<T>& pass) const {  // of a channel's values on all ranks
    return static_cast<double>(pass.rows * plane() * parts_);
  }
  Moments own_moments(const LayerPass<T>& pass, std::int64_t channel) const;
  // Gathers those of all channels and ranks into scratch, for joined_moments().
  void gather_moments(const LayerPass<T>& pass) const;
  Moments joined_moments(const LayerPass<T>& pass, std::int64_t channel) const;
  // Leaves the sums of all ranks in scratch, for summed().
  void add_gradient_sums(const LayerPass<T>& pass, std::span<const T> dy) const;
  Sums summed(const LayerPass<T>& pass, std::int64_t channel) const;
  // Pair `at` of doubles in scratch, and `pairs` from there on as a tensor.
  static void put_pair(const LayerPass<T>& pass, std::int64_t at, double first, double second);
  static std::pair<double, double> pair(const LayerPass<T>& pass, std::int64_t at);
  static TensorView pairs(const LayerPass<T>& pass, std::int64_t at, std::int64_t pairs);
  void measure(const LayerPass<T>& pass) const;
  void forward_there(const LayerPass<T>& pass) const;
  Sums gradient_sums(const LayerPass<T>& pass, std::span<const T> dy, std::int64_t channel) const;

  SampleShape shape_;
  int parts_;
};

}  // namespace gradwire
