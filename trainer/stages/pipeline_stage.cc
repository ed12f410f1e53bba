#include "trainer/stages/pipeline_stage.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

// Layer by layer from the last to the first, each open while it computes.
template <typename Half>
Status back_through(const LayerRange& range, LayerGate* gate, const Half& half) {
  for (std::size_t layer = range.end; layer-- > range.begin;) {
    if (gate != nullptr) GW_TRY(gate->open(layer, Way::kBack));
    GW_TRY(half(LayerRange{layer, layer + 1}));
    if (gate != nullptr) GW_TRY(gate->close(layer, Way::kBack));
  }
  return {};
}

}  // namespace

Result<PipelineStage> PipelineStage::create(const Model<float>& model,
                                            const StageOptions& options) {
  PipelineStage stage(model, options.layers);
  GW_ASSIGN(std::vector<Segment> segments,
            recompute_segments(options.recompute, model, options.layers));
  if (options.split && !segments.empty()) {
    return Status(Code::kUnsupported,
                  format("recompute '%s' with a backward in two halves (expected none)",
                         options.recompute.c_str()));
  }
  const MemorySpace where = options.memory.device().space;
  stage.walk_ = std::make_unique<LayerWalk>(model, segments, options.layers);
  const ActivationSizes sizes =
      model.activation_sizes(options.layers, options.max_rows, std::move(segments), where);
  stage.input_width_ = sizes.widths[options.layers.begin];
  stage.output_width_ = sizes.widths[options.layers.end];
  const DeltaRoom room = options.split ? DeltaRoom::kEveryLevel : DeltaRoom::kTurns;
  GW_ASSIGN(Activations<float> first,
            Activations<float>::create(sizes, options.max_rows, room, options.memory));
  stage.contexts_.push_back(std::make_unique<Context>(Context{std::move(first)}));
  while (stage.contexts_.size() < options.contexts) {
    GW_ASSIGN(Activations<float> next, stage.contexts_.front()->activations.sibling());
    stage.contexts_.push_back(std::make_unique<Context>(Context{std::move(next)}));
  }
  return stage;
}

Result<PipelineStage::Context*> PipelineStage::context(int micro) {
  for (const auto& one : contexts_) {
    if (one->micro == micro) return one.get();
  }
  return Status(Code::kInternal, format("micro-batch %d is not open on its stage", micro));
}

Result<std::span<float>> PipelineStage::open(int micro, const ModelPass<float>& pass) {
  for (const auto& one : contexts_) {
    if (one->micro >= 0) continue;
    one->micro = micro;
    one->pass = pass;
    one->pass.activations = &one->activations;
    return one->activations.values(layers_.begin, pass.rows);
  }
  return Status(Code::kInternal, format("micro-batch %d is opened while %zu others are (expected "
                                        "fewer)",
                                        micro, contexts_.size()));
}

Status PipelineStage::read(int micro, std::span<const float> params) {
  GW_ASSIGN(Context* const one, context(micro));
  one->pass.params = params;
  return {};
}

Result<std::span<const float>> PipelineStage::forward(int micro, LayerGate* gate) {
  GW_ASSIGN(Context* const one, context(micro));
  GW_TRY(walk_->forward(one->pass, gate));
  return output(micro);
}

Result<std::span<const float>> PipelineStage::output(int micro) {
  GW_ASSIGN(Context* const one, context(micro));
  return std::span<const float>(one->activations.values(layers_.end, one->pass.rows));
}

Result<std::span<float>> PipelineStage::output_gradient(int micro) {
  GW_ASSIGN(Context* const one, context(micro));
  return one->activations.deltas(layers_.end, one->pass.rows);
}

Status PipelineStage::backward(int micro, std::span<float> grads, const Ready& ready,
                               LayerGate* gate) {
  GW_ASSIGN(Context* const one, context(micro));
  return walk_->backward(one->pass, grads, ready, gate);
}

// Of the layer that the way back ends with nobody reads the derivative by the input, but the layer
// itself where its halves go together.
Status PipelineStage::backward_input(int micro, LayerGate* gate) {
  GW_ASSIGN(Context* const one, context(micro));
  LayerRange read = layers_;
  while (read.begin < read.end && !model_->derives_input(read.begin) &&
         (read.begin < model_->last_of_backward() ||
          !model_->layer(read.begin).params_read_stash(one->pass.rows))) {
    ++read.begin;
  }
  return back_through(read, gate, [&](const LayerRange& layer) {
    model_->backward_input(one->pass, layer);
    return one->pass.peers == nullptr ? Status() : one->pass.peers->status();
  });
}

Status PipelineStage::backward_params(int micro, std::span<float> grads, const Ready& ready,
                                      LayerGate* gate) {
  GW_ASSIGN(Context* const one, context(micro));
  return back_through(layers_, gate, [&](const LayerRange& layer) {
    return model_->backward_params(one->pass, layer, grads, ready);
  });
}

Result<std::span<const float>> PipelineStage::input_gradient(int micro) {
  GW_ASSIGN(Context* const one, context(micro));
  return std::span<const float>(one->activations.deltas(layers_.begin, one->pass.rows));
}

void PipelineStage::close(int micro) {
  for (const auto& one : contexts_) {
    if (one->micro == micro) one->micro = -1;
  }
}

void PipelineStage::close_all() {
  for (const auto& one : contexts_) one->micro = -1;
}

std::size_t PipelineStage::open_contexts() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(contexts_, [](const auto& one) { return one->micro >= 0; }));
}

}  // namespace gradwire
