// One stage of a pipeline: some layers of a model, and the micro-batches that are between their
// forward and the end of their backward.
//
//   open(), forward(), then backward(), or backward_input() and, any time later,
//   backward_params(), then close(). In evaluation close() follows forward().
// Where backward is split its halves are the layers' own: every derivative by a level stays until
// close(). Otherwise derivatives take turns in memory that the stage's micro-batches share, so that
// output_gradient() is written directly before backward().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "trainer/activations.h"
#include "trainer/layer_gate.h"
#include "trainer/layer_walk.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/model.h"

namespace gradwire {

struct StageOptions {
  LayerRange layers = {};
  std::size_t contexts = 1;  // micro-batches at a time
  std::int64_t max_rows = 1;
  bool split = false;
  std::string recompute = "none";  // as recompute_segments() says; of split stages "none"
  MemoryArena memory = {};
};

// All memory is taken at birth. From one thread. Micro-batches are known by their numbers;
// functions that take one want it open: kInternal.
class PipelineStage {
 public:
  // The model is borrowed. kUnsupported: a split stage that computes again.
  static Result<PipelineStage> create(const Model<float>& model, const StageOptions& options);

  const LayerRange& layers() const { return layers_; }
  std::int64_t input_elems(std::int64_t rows) const { return input_width_ * rows; }
  std::int64_t output_elems(std::int64_t rows) const { return output_width_ * rows; }

  // A micro-batch of pass.rows samples begins. The caller writes what is returned: the input,
  // (rows, input). `pass`: as Model's, without activations; what it borrows lives until close().
  Result<std::span<float>> open(int micro, const ModelPass<float>& pass);
  // What is left of its passes reads these parameters: where those of open() have changed since.
  Status read(int micro, std::span<const float> params);
  // Returns the output. Of all passes: a gate brings what a layer computes with; null: it is there.
  Result<std::span<const float>> forward(int micro, LayerGate* gate);
  Result<std::span<const float>> output(int micro);
  // The derivative of the loss by the output, for the caller to write.
  Result<std::span<float>> output_gradient(int micro);
  // `grads` of the whole of the model's parameters, of which the stage's are overwritten; `ready`
  // as Model::backward() says.
  using Ready = Model<float>::Ready;
  Status backward(int micro, std::span<float> grads, const Ready& ready, LayerGate* gate);
  Status backward_input(int micro, LayerGate* gate);
  Status backward_params(int micro, std::span<float> grads, const Ready& ready, LayerGate* gate);
  // After backward() or backward_input(): the derivative by the input, until the next call for
  // another micro-batch.
  Result<std::span<const float>> input_gradient(int micro);
  void close(int micro);
  // Of all micro-batches: after an error, or between steps.
  void close_all();
  // Micro-batches that are open.
  std::size_t open_contexts() const;

 private:
  struct Context {
    Activations<float> activations;
    int micro = -1;  // -1: nobody's
    ModelPass<float> pass = {};
  };
  PipelineStage(const Model<float>& model, const LayerRange& layers)
      : model_(&model), layers_(layers) {}
  Result<Context*> context(int micro);

  const Model<float>* model_;
  LayerRange layers_;
  std::int64_t input_width_ = 0;
  std::int64_t output_width_ = 0;
  std::unique_ptr<LayerWalk> walk_;
  std::vector<std::unique_ptr<Context>> contexts_;
};

}  // namespace gradwire
