// One layer with explicit forward and backward. Layers are immutable: parameters, activations and
// scratch are handed in, so ranks that are threads may share a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/parameters.h"

namespace gradwire {

// One sample between two layers: channels of height x width values, row-major. A vector of n
// features is (n, 1, 1).
struct SampleShape {
  std::int64_t channels = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  constexpr std::int64_t elems() const { return channels * height * width; }
  friend bool operator==(const SampleShape&, const SampleShape&) = default;
};

// What the calls of one micro-batch share. Everything that backward needs of forward is here and
// explicit: the layer's input and output.
template <typename T>
struct LayerPass {
  std::int64_t rows = 0;      // samples of the micro-batch
  std::span<const T> params;  // this layer's, in the order of parameters()
  std::span<const T> x;       // (rows, input)
  std::span<T> y;             // (rows, output): written by forward, read by backward
  std::span<T> scratch;       // scratch_elems() values, contents undefined between calls
};

// T is float for training and double for gradient checks. The same call on the same values gives
// the same bits.
template <typename T>
class Layer {
 public:
  virtual ~Layer() = default;

  virtual SampleShape output() const = 0;
  // Names local to the layer ("weight"), offsets from the start of its block.
  virtual ParameterTable parameters() const { return {}; }
  virtual std::int64_t scratch_elems() const { return 0; }

  virtual void forward(const LayerPass<T>& pass) const = 0;
  // grads = derivative of the loss by the parameters, overwritten; dy (rows, output) is the
  // derivative by y.
  virtual void backward_params(const LayerPass<T>& /*pass*/, std::span<const T> /*dy*/,
                               std::span<T> /*grads*/) const {}
  // dx (rows, input) = derivative of the loss by x, overwritten. dx and dy do not overlap.
  virtual void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                              std::span<T> dx) const = 0;
};

}  // namespace gradwire
