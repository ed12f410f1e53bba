// A linear layer whose inputs are divided among ranks: each has some columns of the weight, and
// the outputs are the sum of what ranks make of theirs.
// Source: Shoeybi et al., "Megatron-LM", arXiv 1909.08053, 2019, section 3 (row parallel; its
// operator g is the sum of y).
#pragma once

#include "trainer/layers/linear.h"

namespace gradwire {

// Inputs of the whole layer, of which `here` are this rank's.
struct RowShare {
  std::int64_t inputs = 1;
  Range here;
};

// x: (rows positions, inputs here), y: (rows positions, out), equal on all peers: the sum over
// them of x W^T, to which each adds the bias, which it has as a whole. The way back sends nothing.
// The weight is a box of the whole layer's.
template <typename T>
class RowLinear final : public Layer<T> {
 public:
  // kElsewhere: y is this rank's part of the sum, without a bias.
  enum class Sum : std::uint8_t { kHere, kElsewhere };

  RowLinear(const RowShare& share, std::int64_t out, LinearOptions options = {},
            Sum sum = Sum::kHere)
      : linear_(share.here.size(), out, {false, options.positions}),
        out_(out),
        share_(share),
        options_(options),
        sum_(sum) {}

  SampleShape output() const override { return linear_.output(); }
  ParameterTable parameters() const override;
  LayerCost cost() const override { return linear_.cost(); }
  Result<Placement> placement(const Placement& x,
                              std::span<const ParameterInfo> parameters) const override {
    GW_TRY(check_reads(x, {Placement::by_features()}));
    if (sum_ == Sum::kElsewhere) return Placement::partial();
    GW_TRY(check_whole_parameters(Placement::invariant(), parameters));
    return Placement::invariant();
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override {
    linear_.backward_input(of_weight(pass), dy, dx);
  }

 private:
  std::int64_t weight_elems() const { return out_ * share_.here.size(); }
  LayerPass<T> of_weight(const LayerPass<T>& pass) const;

  Linear<T> linear_;
  std::int64_t out_;
  RowShare share_;
  LinearOptions options_;
  Sum sum_;
};

}  // namespace gradwire
