// Every position looks at itself and those before it, by several heads at once.
// Source: Vaswani et al., "Attention is all you need", NeurIPS 2017, eq. 1; probabilities computed
// again on the way back from a row's maximum and logsumexp: Dao et al., "FlashAttention",
// NeurIPS 2022, algorithm 4.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

// x: (rows, positions, 3 width): queries, keys and values side by side; y: (rows, positions,
// width). A head is `width / heads` neighbouring features of each. Per row and head, with
// s = 1 / sqrt(width / heads) and column j of row i left out for j > i:
//
//   S = s Q K^T    P = softmax(S)    Y = P V
//   dV = P^T dY    dP = dY V^T    dS = P (dP - rows' sums of P dP)    dQ = s dS K    dK = s dS^T Q
//
// No parameters: what comes before and after are linear layers. Kept from forward: each row's
// maximum and the logarithm of its sum of exponentials above it, two values in place of `positions`
// probabilities.
template <typename T>
class CausalAttention final : public Layer<T> {
 public:
  // Requires width % heads == 0.
  CausalAttention(std::int64_t positions, std::int64_t width, std::int64_t heads);

  SampleShape output() const override { return {positions_, 1, width_}; }
  // Of all positions; heads may be divided.
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    GW_TRY(check_reads(x, {Placement::invariant(), Placement::by_features()}));
    return x;
  }
  // The host goes from head to head; a device has all of them in memory at a time.
  std::int64_t scratch_elems(std::int64_t rows, MemorySpace where) const override {
    const std::int64_t heads = where == MemorySpace::kCuda ? rows * heads_ : 1;
    return 2 * heads * positions_ * positions_;
  }
  std::int64_t saved_elems(std::int64_t rows) const override {
    return 2 * rows * heads_ * positions_;
  }
  // Of whole matrices, though half of S is left out.
  LayerCost cost() const override {
    const std::int64_t product = positions_ * positions_ * width_;
    return {2 * product, 5 * product, 0};
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  std::int64_t positions_;
  std::int64_t width_;
  std::int64_t heads_;
};

}  // namespace gradwire
