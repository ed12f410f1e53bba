// In which order a micro-batch visits a model's layers, and which of them compute twice.
//
// Without segments: all layers forward, then back. With segments the way forward keeps what enters
// each (Activations) and the inside of those that say so; on the way back the inside of the others,
// but for the last of them, which is still there, is computed again before its layers go back.
// Layers are opened one by one; those of a segment that is computed again stay open from then to
// their way back.
// Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016
// (arXiv 1604.06174), section 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "trainer/layer_gate.h"
#include "trainer/model.h"

namespace gradwire {

// Which layers are computed again instead of kept: "none", "full" (every layer is a segment),
// "sqrt" (about sqrt(layers) segments of as many layers), a number, the layers of a segment, or
// "selective": every layer is a segment, and of those that keep anything inside the ones are
// computed again that cost fewer products for an element kept than all of them do together; where
// all cost the same, all; layers weigh as Model::weight() says. kInvalidArgument for another word.
// Source of choosing by cost: Korthikanti, Casper, Lym, McAfee, Andersch, Shoeybi, Catanzaro,
// "Reducing activation recomputation in large transformer models", MLSys 2023, section 5, which
// chooses the attention's scores; attention here never keeps those.
Result<std::vector<Segment>> recompute_segments(std::string_view policy, const Model<float>& model);
// Of passes through layers `range` alone.
Result<std::vector<Segment>> recompute_segments(std::string_view policy, const Model<float>& model,
                                                LayerRange range);
// Whether there is such a policy.
Status check_recompute(std::string_view policy);

// One layer's turn.
struct LayerTurn {
  enum class Kind : std::uint8_t { kOpen, kForward, kAgain, kBack, kClose };
  Kind kind = Kind::kOpen;
  std::size_t layer = 0;
};

// The turns as data, and who carries them out. Immutable but for the counts.
class LayerWalk {
 public:
  // The model is borrowed; `segments` cover its layers, or none.
  LayerWalk(const Model<float>& model, const std::vector<Segment>& segments)
      : LayerWalk(model, segments, model.all()) {}
  // Through layers `range` alone, which `segments` cover.
  LayerWalk(const Model<float>& model, const std::vector<Segment>& segments, LayerRange range);

  const std::vector<LayerTurn>& turns(Way way) const {
    return way == Way::kForward ? forward_ : back_;
  }
  // Layers in the order in which they are opened.
  std::vector<std::size_t> openings(Way way) const;

  // As Model::forward() and backward(), on activations of the same segments. `gate` may be null.
  Status forward(const ModelPass<float>& pass, LayerGate* gate) const;
  Status backward(const ModelPass<float>& pass, std::span<float> grads,
                  const Model<float>::Ready& ready, LayerGate* gate) const;

  // Layers' forward calls of one micro-batch beyond the first of each.
  std::int64_t computed_again() const;

 private:
  void add_segment(const LayerRange& segment, bool again);
  bool needed_again(std::size_t layer, const LayerRange& segment) const;

  const Model<float>* model_;
  std::vector<LayerTurn> forward_;
  std::vector<LayerTurn> back_;
};

}  // namespace gradwire
