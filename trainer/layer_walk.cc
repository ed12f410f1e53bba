#include "trainer/layer_walk.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"

namespace gradwire {

namespace {

// Layers of a segment under a policy; 0: there are none.
Result<std::size_t> segment_length(std::string_view policy, std::size_t layers) {
  if (policy == "none") return std::size_t{0};
  if (policy == "full" || policy == "selective") return std::size_t{1};
  if (policy == "sqrt") {
    return static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(layers))));
  }
  if (const auto number = to_int(policy); number && *number >= 1) {
    return static_cast<std::size_t>(*number);
  }
  return Status(
      Code::kInvalidArgument,
      format("recompute '%.*s' (expected none, selective, full, sqrt, or layers of a segment)",
             static_cast<int>(policy.size()), policy.data()));
}

// Keeps what is dearer to compute again, for the memory that it takes, than all of it together.
void keep_dear_ones(const Model<float>& model, const LayerRange& range,
                    std::vector<Segment>& segments) {
  const auto elems = [&](std::size_t layer) { return model.weight(layer).kept; };
  const auto macs = [&](std::size_t layer) { return model.weight(layer).macs; };
  std::int64_t all_elems = 0;
  std::int64_t all_macs = 0;
  for (std::size_t layer = range.begin; layer < range.end; ++layer) {
    if (elems(layer) == 0) continue;
    all_elems += elems(layer);
    all_macs += macs(layer);
  }
  for (Segment& segment : segments) {
    const std::size_t layer = segment.range.begin;
    const double own = static_cast<double>(macs(layer)) * static_cast<double>(all_elems);
    const double mean = static_cast<double>(all_macs) * static_cast<double>(elems(layer));
    segment.again = elems(layer) > 0 && own <= mean;
  }
}

}  // namespace

Status check_recompute(std::string_view policy) { return segment_length(policy, 1).error(); }

Result<std::vector<Segment>> recompute_segments(std::string_view policy,
                                                const Model<float>& model) {
  return recompute_segments(policy, model, model.all());
}

Result<std::vector<Segment>> recompute_segments(std::string_view policy, const Model<float>& model,
                                                LayerRange range) {
  GW_ASSIGN(const std::size_t length, segment_length(policy, range.end - range.begin));
  std::vector<Segment> segments;
  for (std::size_t begin = range.begin; length > 0 && begin < range.end; begin += length) {
    segments.push_back({{begin, std::min(begin + length, range.end)}, true});
  }
  if (policy == "selective") keep_dear_ones(model, range, segments);
  return segments;
}

LayerWalk::LayerWalk(const Model<float>& model, const std::vector<Segment>& segments,
                     LayerRange range)
    : model_(&model) {
  using Kind = LayerTurn::Kind;
  for (std::size_t layer = range.begin; layer < range.end; ++layer) {
    for (const Kind kind : {Kind::kOpen, Kind::kForward, Kind::kClose}) {
      forward_.push_back({kind, layer});
    }
  }
  if (segments.empty()) {
    add_segment(range, false);
    return;
  }
  GW_CHECK(segments.front().range.begin == range.begin && segments.back().range.end == range.end);
  bool there = true;  // the inside of the last that is not kept
  for (std::size_t s = segments.size(); s-- > 0;) {
    add_segment(segments[s].range, segments[s].again && !there);
    there = there && !segments[s].again;
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
      default:
        model_->forward(pass, {layer, layer + 1});
        if (pass.peers != nullptr) GW_TRY(pass.peers->status());
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
      default:
        model_->forward(once_more, {layer, layer + 1});
        if (pass.peers != nullptr) GW_TRY(pass.peers->status());
    }
  }
  return {};
}

}  // namespace gradwire
