// One layer with explicit forward and backward. Layers are immutable: parameters, activations and
// scratch are handed in, so ranks that are threads may share a model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/layer_peers.h"
#include "trainer/layers/layer_kernels.h"
#include "trainer/layers/parallel/place.h"
#include "trainer/layers/parallel/sample_rows.h"
#include "trainer/parameters.h"

namespace gradwire {

// One sample between two layers: channels of height x width values, row-major. A vector of n
// features is (n, 1, 1); a sequence of n features at each of p positions is (p, 1, n).
struct SampleShape {
  std::int64_t channels = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  constexpr std::int64_t elems() const { return channels * height * width; }
  friend bool operator==(const SampleShape&, const SampleShape&) = default;
};

enum class PassMode : std::uint8_t {
  kTrain,      // statistics of the micro-batch are used and collected, dropout draws
  kEvaluate,   // running statistics, no dropout; no backward follows
  kRecompute,  // the bits of kTrain, collecting nothing: the first time did
};

// What makes a micro-batch's random numbers its own, on any rank, and however often it is computed.
struct PassContext {
  PassMode mode = PassMode::kTrain;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::int64_t first_sample = 0;  // place of its first row in the step's global batch
};

// What the calls of one micro-batch share. Everything that backward needs of forward is here and
// explicit: x and saved. The output is the next layer's x and nobody's here.
template <typename T>
struct LayerPass {
  std::int64_t rows = 0;      // samples of the micro-batch that x has
  std::span<const T> params;  // this layer's, in the order of parameters()
  std::span<const T> x;       // (rows, input)
  std::span<T> y;             // (rows, output), or as SampleRows says: written by forward, not
                              // read by backward
  std::span<T> scratch;       // scratch_elems(rows, where) values, undefined between calls
  std::span<T> saved = {};    // saved_elems(rows) values: forward writes, backward reads
  std::span<T> stash = {};    // stash_elems(rows): backward_input writes, what follows it reads
  std::span<const T> buffers = {};    // this layer's, in the order of buffers(); for kEvaluate
  std::span<double> statistics = {};  // added to in kTrain; empty: nothing is collected
  PassContext context = {};
  // Not null: all spans are of this device's memory, and calls enqueue their work there; an error
  // is the kernels' status().
  LayerKernels<T>* device = nullptr;
  // Who holds the other parts of the layer's tensors; null where the layer is here as a whole.
  LayerPeers* peers = nullptr;
  // Samples of the micro-batch on all peers; `rows` but where they divide them (SampleRows). There
  // context.first_sample is that of x's first row.
  std::int64_t all_rows = 0;
};

// Multiplications with their additions that one sample costs, without what is not a product.
struct LayerCost {
  std::int64_t forward_macs = 0;
  std::int64_t input_macs = 0;   // backward_input
  std::int64_t weight_macs = 0;  // backward_params
  LayerCost& operator+=(const LayerCost& other) {
    forward_macs += other.forward_macs;
    input_macs += other.input_macs;
    weight_macs += other.weight_macs;
    return *this;
  }
};

template <typename T>
class Layer;

// A layer inside another one.
template <typename T>
struct LayerPart {
  std::string name;                 // as the parameters of the outer layer are called; may be empty
  const Layer<T>* layer = nullptr;  // the outer layer's
  SampleShape input = {};           // what it reads
};

// T is float for training and double for gradient checks. The same call on the same values gives
// the same bits.
template <typename T>
class Layer {
 public:
  virtual ~Layer() = default;

  virtual SampleShape output() const = 0;
  virtual SampleRows sample_rows() const { return SampleRows::kAsInput; }
  // Names local to the layer ("weight"), offsets from the start of its block.
  virtual ParameterTable parameters() const { return {}; }
  // Values that are not trained but follow the data (running statistics), as parameters() are.
  virtual ParameterTable buffers() const { return {}; }
  // Sums over samples that forward collects for commit().
  virtual std::int64_t statistics_elems() const { return 0; }
  // Where it computes decides how: kHost or kCuda.
  virtual std::int64_t scratch_elems(std::int64_t /*rows*/, MemorySpace /*where*/) const {
    return 0;
  }
  virtual std::int64_t saved_elems(std::int64_t /*rows*/) const { return 0; }
  virtual std::int64_t stash_elems(std::int64_t /*rows*/) const { return 0; }
  // Whether backward_params() reads the stash, and so wants backward_input() of the same pass
  // before it. Otherwise the two may come in any order, and either without the other.
  virtual bool params_read_stash(std::int64_t rows) const { return stash_elems(rows) > 0; }
  virtual LayerCost cost() const { return {}; }
  // The layers that it is made of, in the order of forward; none: it is one layer.
  virtual std::vector<LayerPart<T>> parts() const { return {}; }
  // How y lies on the ranks that share tensors, where x lies so; `parameters`: the layer's, as the
  // model has them. kInvalidArgument says what of it does not fit. By default y lies like x, which
  // is all here, or divided by positions.
  virtual Result<Placement> placement(const Placement& x,
                                      std::span<const ParameterInfo> parameters) const {
    GW_TRY(check_reads(x, {Placement::invariant(), Placement::by_positions()}));
    GW_TRY(check_whole_parameters(x, parameters));
    return x;
  }

  virtual void forward(const LayerPass<T>& pass) const = 0;
  // grads = derivative of the loss by the parameters, overwritten; dy (rows, output) is the
  // derivative by y.
  virtual void backward_params(const LayerPass<T>& /*pass*/, std::span<const T> /*dy*/,
                               std::span<T> /*grads*/) const {}
  // dx (rows, input) = derivative of the loss by x, overwritten. dx and dy do not overlap. Of a
  // layer with peers dx is theirs until finish_input().
  virtual void backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                              std::span<T> dx) const = 0;
  // Behind every backward_input(), with the same arguments, and nothing but backward_params()
  // between the two: waits for what backward_input() has started, so that dx is whole.
  virtual void finish_input(const LayerPass<T>& /*pass*/, std::span<const T> /*dy*/,
                            std::span<T> /*dx*/) const {}
  // All three, in the order in which exchanges with peers hide behind products; the same bits as
  // one after another.
  virtual void backward(const LayerPass<T>& pass, std::span<const T> dy, std::span<T> dx,
                        std::span<T> grads) const {
    backward_input(pass, dy, dx);
    if (!grads.empty()) backward_params(pass, dy, grads);
    finish_input(pass, dy, dx);
  }

  // New buffers from what all micro-batches of a step added to `statistics`, on all ranks.
  virtual void commit(std::span<const double> /*statistics*/, std::span<T> /*buffers*/) const {}
};

}  // namespace gradwire
