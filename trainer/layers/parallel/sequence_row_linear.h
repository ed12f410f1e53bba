// A linear layer whose inputs are divided among ranks, and of whose outputs each rank has those of
// its own positions.
// Source: Korthikanti et al., "Reducing activation recomputation in large transformer models",
// MLSys 2023, section 4.2.2 (operator g-bar).
#pragma once

#include "trainer/layers/parallel/row_linear.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// As RowLinear, but y: (rows, positions / ranks, out), the sum over peers at this rank's positions,
// to which the bias is added: each rank's gradient of the bias is of these positions alone.
// backward_input() gathers dy for both halves of the way back.
template <typename T>
class SequenceRowLinear final : public Layer<T> {
 public:
  // options.positions: of the whole sequence; the ranks divide them.
  SequenceRowLinear(const RowShare& inputs, std::int64_t out, LinearOptions options,
                    const TensorShare& share)
      : row_(inputs, out, {false, options.positions}, RowLinear<T>::Sum::kElsewhere),
        inputs_(inputs),
        out_(out),
        options_(options),
        share_(share) {}

  SampleShape output() const override {
    return {share_.stream(options_.positions).size(), 1, out_};
  }
  ParameterTable parameters() const override;
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace where) const override;
  std::int64_t stash_elems(std::int64_t rows) const override { return elems(rows); }
  LayerCost cost() const override { return row_.cost(); }
  Result<Placement> placement(const Placement& x,
                              std::span<const ParameterInfo> parameters) const override {
    GW_TRY(check_reads(x, {Placement::by_features()}));
    GW_TRY(check_whole_parameters(Placement::by_positions(), parameters));
    return Placement::by_positions();
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  std::int64_t elems(std::int64_t rows) const { return rows * options_.positions * out_; }
  std::int64_t weight_elems() const { return out_ * inputs_.here.size(); }
  LayerPass<T> of_weight(const LayerPass<T>& pass) const;

  RowLinear<T> row_;
  RowShare inputs_;
  std::int64_t out_;
  LinearOptions options_;
  TensorShare share_;
};

}  // namespace gradwire
