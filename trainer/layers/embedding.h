// Tokens and their places as vectors.
#pragma once

#include "trainer/layers/layer.h"

namespace gradwire {

struct EmbeddingShape {
  std::int64_t vocabulary = 1;
  std::int64_t positions = 1;
  std::int64_t width = 1;
};

// x: (rows, positions) of token numbers 0..vocabulary-1 (exact in T), token: (vocabulary, width),
// position: (positions, width), y: (rows, positions, width) = token[x] + position. Gradients add up
// from the first row and position to the last. No derivative by token numbers: dx is 0.
template <typename T>
class Embedding final : public Layer<T> {
 public:
  explicit Embedding(EmbeddingShape shape) : shape_(shape) {}

  SampleShape output() const override { return {shape_.positions, 1, shape_.width}; }
  ParameterTable parameters() const override;
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  EmbeddingShape shape_;
};

// y = x W^T with the embedding's `token` for W, no bias: (rows, positions, width) to
// (rows, positions, vocabulary). It has no parameters: those of a pass are `token`, its gradients
// one of the same shape.
template <typename T>
class TiedHead final : public Layer<T> {
 public:
  explicit TiedHead(EmbeddingShape shape) : shape_(shape) {}

  SampleShape output() const override { return {shape_.positions, 1, shape_.vocabulary}; }
  // Where ranks have different tokens (R), the logits of these.
  Result<Placement> placement(const Placement& x, std::span<const ParameterInfo>) const override {
    GW_TRY(check_reads(x, {Placement::invariant(), Placement::replicated()}));
    return x == Placement::invariant() ? x : Placement::by_features();
  }
  LayerCost cost() const override {
    const std::int64_t macs = shape_.positions * shape_.width * shape_.vocabulary;
    return {macs, macs, macs};
  }
  void forward(const LayerPass<T>& pass) const override;
  void backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                       std::span<T> grads) const override;
  void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                      std::span<T> dx) const override;

 private:
  EmbeddingShape shape_;
};

}  // namespace gradwire
