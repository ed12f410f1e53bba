// A linear layer whose outputs are divided among ranks: each has some rows of the weight.
// Source: Shoeybi et al., "Megatron-LM", arXiv 1909.08053, 2019, section 3 (column parallel).
#pragma once

#include "trainer/layers/linear.h"

namespace gradwire {

// Outputs of the whole layer, in `groups` of equal size, of each of which `here` is this rank's:
// the attention's queries, keys and values are three groups, of which it has the same heads.
struct ColumnShare {
  std::int64_t outputs = 1;
  Range here;
  std::int64_t groups = 1;

  std::int64_t outputs_here() const { return groups * here.size(); }
};

// As Linear of the outputs that are here, y: (rows positions, outputs_here()), of an x that is
// equal on all peers. dx is this rank's part of a sum (InputSum, SequenceGather). Parameters are
// boxes of the whole layer's. Exchanges nothing.
template <typename T>
class ColumnLinear final : public Layer<T> {
 public:
  ColumnLinear(std::int64_t in, const ColumnShare& share, LinearOptions options = {})
      : linear_(in, share.outputs_here(), options),
        in_(in),
        share_(share),
        has_bias_(options.bias) {}

  SampleShape output() const override { return linear_.output(); }
  ParameterTable parameters() const override;
  LayerCost cost() const override { return linear_.cost(); }
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    GW_TRY(check_reads(x, {Placement::replicated()}));
    return Placement::by_features();
  }
  void forward(const LayerPass<T>& pass) const override { linear_.forward(pass); }
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override {
    linear_.backward_params(pass, dy, grads);
  }
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override {
    linear_.backward_input(pass, dy, dx);
  }

 private:
  Linear<T> linear_;
  std::int64_t in_;
  ColumnShare share_;
  bool has_bias_;
};

}  // namespace gradwire
