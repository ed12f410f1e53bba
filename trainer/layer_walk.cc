#include "trainer/layer_walk.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"

namespace gradwire {

Result<std::vector<LayerRange>> recompute_segments(std::string_view policy, std::size_t layers) {
  std::size_t length = 0;
  if (policy == "none") return std::vector<LayerRange>();
  if (policy == "full") {
    length = 1;
  } else if (policy == "sqrt") {
    length = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(layers))));
  } else if (const auto number = to_int(policy); number && *number >= 1) {
    length = static_cast<std::size_t>(*number);
  } else {
    return Status(Code::kInvalidArgument,
                  format("recompute '%.*s'; none, full, sqrt, or layers of a segment wanted",
                         static_cast<int>(policy.size()), policy.data()));
  }
  std::vector<LayerRange> segments;
  for (std::size_t begin = 0; begin < layers; begin += length) {
    segments.push_back({begin, std::min(begin + length, layers)});
  }
  return segments;
}

LayerWalk::LayerWalk(const Model<float>& model, const std::vector<LayerRange>& segments)
    : model_(&model) {
  using Kind = LayerTurn::Kind;
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    for (const Kind kind : {Kind::kOpen, Kind::kForward, Kind::kClose}) {
      forward_.push_back({kind, layer});
    }
  }
  if (segments.empty()) {
    add_segment(model.all(), false);
    return;
  }
  GW_CHECK(segments.front().begin == 0 && segments.back().end == model.layers());
  for (std::size_t s = segments.size(); s-- > 0;) {
    add_segment(segments[s], s + 1 < segments.size());
  }
}

// Of the last layer nobody reads the output: it computes again for what it keeps alone.
bool LayerWalk::needed_again(std::size_t layer, const LayerRange& segment) const {
  return layer + 1 < segment.end || model_->layer(layer).saved_elems(1) > 0;
}

void LayerWalk::add_segment(const LayerRange& segment, bool again) {
  using Kind = LayerTurn::Kind;
  const std::size_t last = model_->last_of_backward();
  if (segment.end <= last) return;
  for (std::size_t layer = segment.begin; again && layer < segment.end; ++layer) {
    back_.push_back({Kind::kOpen, layer});
    if (needed_again(layer, segment)) back_.push_back({Kind::kAgain, layer});
  }
  for (std::size_t layer = segment.end; layer-- > segment.begin;) {
    if (!again && layer < last) break;
    if (!again) back_.push_back({Kind::kOpen, layer});
    if (layer >= last) back_.push_back({Kind::kBack, layer});
    back_.push_back({Kind::kClose, layer});
  }
}

std::vector<std::size_t> LayerWalk::openings(Way way) const {
  std::vector<std::size_t> layers;
  for (const LayerTurn& turn : turns(way)) {
    if (turn.kind == LayerTurn::Kind::kOpen) layers.push_back(turn.layer);
  }
  return layers;
}

std::int64_t LayerWalk::computed_again() const {
  return std::count_if(back_.begin(), back_.end(),
                       [](const LayerTurn& turn) { return turn.kind == LayerTurn::Kind::kAgain; });
}

Status LayerWalk::forward(const ModelPass<float>& pass, LayerGate* gate) const {
  for (const auto& [kind, layer] : forward_) {
    switch (kind) {
      case LayerTurn::Kind::kOpen:
        if (gate != nullptr) GW_TRY(gate->open(layer, Way::kForward));
        break;
      case LayerTurn::Kind::kClose:
        if (gate != nullptr) GW_TRY(gate->close(layer, Way::kForward));
        break;
      default: model_->forward(pass, {layer, layer + 1});
    }
  }
  return {};
}

Status LayerWalk::backward(const ModelPass<float>& pass, std::span<float> grads,
                           const Model<float>::Ready& ready, LayerGate* gate) const {
  ModelPass<float> once_more = pass;
  once_more.context.mode = PassMode::kRecompute;
  for (const auto& [kind, layer] : back_) {
    switch (kind) {
      case LayerTurn::Kind::kOpen:
        if (gate != nullptr) GW_TRY(gate->open(layer, Way::kBack));
        break;
      case LayerTurn::Kind::kClose:
        if (gate != nullptr) GW_TRY(gate->close(layer, Way::kBack));
        break;
      case LayerTurn::Kind::kBack: GW_TRY(model_->backward(pass, layer, grads, ready)); break;
      default: model_->forward(once_more, {layer, layer + 1});
    }
  }
  return {};
}

}  // namespace gradwire
