#include "trainer/model.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace gradwire {
namespace {

template <typename T>
TimedSpan timed(const ModelPass<T>& pass, TrainerSpan::Kind kind, std::string_view layer) {
  return {pass.told, kind, static_cast<std::int64_t>(pass.context.step), layer};
}

}  // namespace

template <typename T>
void Model<T>::add(std::string name, std::unique_ptr<Layer<T>> layer) {
  append(std::move(name), std::move(layer), output().elems());
}

template <typename T>
void Model<T>::append(std::string name, std::shared_ptr<const Layer<T>> layer, std::int64_t input) {
  Stage stage;
  stage.input = input;
  stage.first_parameter = static_cast<int>(table_.size());
  stage.params.offset = append_table(table_, name, layer->parameters());
  stage.params.elems = parameter_elems(table_) - stage.params.offset;
  stage.end_parameter = static_cast<int>(table_.size());
  stage.buffers.offset = append_table(buffers_, name, layer->buffers());
  stage.buffers.elems = parameter_elems(buffers_) - stage.buffers.offset;
  stage.statistics = {statistics_, layer->statistics_elems()};
  statistics_ += stage.statistics.elems;
  stage.owner = stages_.size();
  stage.name = std::move(name);
  stage.layer = std::move(layer);
  stages_.push_back(std::move(stage));
}

template <typename T>
void Model<T>::add_tied(std::string name, std::unique_ptr<Layer<T>> layer, std::string_view owner) {
  GW_CHECK(layer->parameters().empty());
  add(std::move(name), std::move(layer));
  const auto found = std::find_if(stages_.begin(), stages_.end(),
                                  [&](const Stage& stage) { return stage.name == owner; });
  GW_CHECK(found != stages_.end());
  stages_.back().params = found->params;
  stages_.back().owner = found->owner;
}

template <typename T>
Result<Model<T>> Model<T>::part(std::span<const LayerRange> ranges) const {
  Model made(input_);
  made.loss_ = loss_;
  made.reads_data_ = reads_data_ && !ranges.empty() && ranges.front().begin == 0;
  for (const LayerRange& range : ranges) {
    for (std::size_t layer = range.begin; layer < range.end; ++layer) {
      const Stage& stage = stages_[layer];
      if (stage.owner != layer) {
        return Status(Code::kUnsupported,
                      format("layer %s has the parameters of %s (expected its own in a part of a "
                             "model)",
                             stage.name.c_str(), stages_[stage.owner].name.c_str()));
      }
      if (made.stages_.empty() && layer > 0) made.input_ = stages_[layer - 1].layer->output();
      made.append(stage.name, stage.layer, stage.input);
      for (int index = stage.first_parameter; index < stage.end_parameter; ++index) {
        ParameterInfo& info =
            made.table_[made.table_.size() - static_cast<std::size_t>(stage.end_parameter - index)];
        info.init = table_[static_cast<std::size_t>(index)].init;
      }
    }
  }
  return made;
}

template <typename T>
void Model<T>::set_init(const std::function<void(ParameterInfo&)>& change) {
  for (ParameterInfo& info : table_) change(info);
}

template <typename T>
SampleShape Model<T>::output() const {
  return stages_.empty() ? input_ : stages_.back().layer->output();
}

template <typename T>
ActivationSizes Model<T>::activation_sizes(std::int64_t max_rows, std::vector<Segment> segments,
                                           MemorySpace where) const {
  return activation_sizes(all(), max_rows, std::move(segments), where);
}

template <typename T>
Result<Activations<T>> Model<T>::make_activations(std::int64_t max_rows, DeltaRoom room) const {
  return Activations<T>::create(activation_sizes(max_rows), max_rows, room);
}

template <typename T>
ActivationSizes Model<T>::activation_sizes(LayerRange range, std::int64_t max_rows,
                                           std::vector<Segment> segments, MemorySpace where) const {
  ActivationSizes sizes;
  sizes.widths.resize(stages_.size() + 1);
  sizes.saved.resize(stages_.size());
  sizes.stash.resize(stages_.size());
  for (std::size_t level = range.begin; level < range.end; ++level) {
    const Layer<T>& layer = *stages_[level].layer;
    if (level == range.begin) sizes.widths[level] = stages_[level].input;
    sizes.widths[level + 1] = layer.output().elems();
    sizes.saved[level] = layer.saved_elems(max_rows);
    sizes.stash[level] = layer.stash_elems(max_rows);
    sizes.scratch = std::max(sizes.scratch, layer.scratch_elems(max_rows, where));
  }
  sizes.segments = std::move(segments);
  return sizes;
}

template <typename T>
LayerPass<T> Model<T>::layer_pass(const ModelPass<T>& pass, std::size_t level) const {
  const Stage& stage = stages_[level];
  Activations<T>& memory = *pass.activations;
  return {pass.rows,
          stage.params.of(pass.params),
          memory.values(level, pass.rows),
          memory.values(level + 1, pass.rows),
          memory.scratch(),
          memory.saved(level),
          memory.stash(level),
          stage.buffers.of(pass.buffers),
          stage.statistics.of(pass.statistics),
          pass.context,
          pass.device};
}

template <typename T>
void Model<T>::forward(const ModelPass<T>& pass, LayerRange range) const {
  for (std::size_t level = range.begin; level < range.end; ++level) {
    const bool again = pass.context.mode == PassMode::kRecompute;
    const TimedSpan span =
        timed(pass, again ? TrainerSpan::Kind::kRecompute : TrainerSpan::Kind::kForward,
              stages_[level].name);
    stages_[level].layer->forward(layer_pass(pass, level));
  }
}

template <typename T>
std::span<const T> Model<T>::forward(const ModelPass<T>& pass) const {
  forward(pass, all());
  return pass.activations->values(last_level(), pass.rows);
}

// The gradients of one layer's parameters, and the word that they are there.
template <typename T>
Status Model<T>::gradients(const ModelPass<T>& pass, std::size_t level, std::span<T> grads,
                           const Ready& ready) const {
  const Stage& stage = stages_[level];
  if (stage.params.elems == 0) return {};
  const std::span<const T> dy = pass.activations->deltas(level + 1, pass.rows);
  {
    const TimedSpan span = timed(pass, TrainerSpan::Kind::kBackwardParams, stage.name);
    stage.layer->backward_params(layer_pass(pass, level), dy, stage.params.of(grads));
  }
  if (pass.device != nullptr) GW_TRY(pass.device->status());
  for (int index = stage.end_parameter; index-- > stage.first_parameter;) GW_TRY(ready(index));
  return {};
}

template <typename T>
std::size_t Model<T>::last_of_backward() const {
  if (!reads_data_) return 0;
  std::size_t level = stages_.size();
  while (level > 0 && stages_[level - 1].first_parameter > 0) --level;
  return level == 0 ? 0 : level - 1;
}

template <typename T>
Status Model<T>::backward(const ModelPass<T>& pass, std::size_t layer, std::span<T> grads,
                          const Ready& ready) const {
  const bool input_first = stages_[layer].layer->stash_elems(pass.rows) > 0;
  // Parameters first where the layer allows: their gradients can travel while the way back goes on.
  if (!input_first) GW_TRY(gradients(pass, layer, grads, ready));
  // Nobody reads the derivative by the data, nor anything below the first parameters.
  if (derives_input(layer) || input_first) backward_input(pass, {layer, layer + 1});
  return input_first ? gradients(pass, layer, grads, ready) : Status();
}

template <typename T>
Status Model<T>::backward(const ModelPass<T>& pass, std::span<T> grads, const Ready& ready) const {
  for (std::size_t level = stages_.size(); level-- > last_of_backward();) {
    GW_TRY(backward(pass, level, grads, ready));
  }
  return {};
}

template <typename T>
void Model<T>::backward_input(const ModelPass<T>& pass, LayerRange range) const {
  Activations<T>& memory = *pass.activations;
  for (std::size_t level = range.end; level-- > range.begin;) {
    const std::span<const T> dy = memory.deltas(level + 1, pass.rows);
    const TimedSpan span = timed(pass, TrainerSpan::Kind::kBackwardInput, stages_[level].name);
    stages_[level].layer->backward_input(layer_pass(pass, level), dy,
                                         memory.deltas(level, pass.rows));
  }
}

template <typename T>
Status Model<T>::backward_params(const ModelPass<T>& pass, LayerRange range, std::span<T> grads,
                                 const Ready& ready) const {
  GW_CHECK(pass.activations->room() == DeltaRoom::kEveryLevel);
  for (std::size_t level = range.end; level-- > range.begin;) {
    GW_TRY(gradients(pass, level, grads, ready));
  }
  return {};
}

template <typename T>
void Model<T>::commit(std::span<const double> statistics, std::span<T> buffers) const {
  GW_CHECK(static_cast<std::int64_t>(statistics.size()) == statistics_);
  for (const Stage& stage : stages_) {
    if (stage.statistics.elems == 0) continue;
    stage.layer->commit(stage.statistics.of(statistics), stage.buffers.of(buffers));
  }
}

template class Model<float>;
template class Model<double>;

}  // namespace gradwire
