#include "trainer/model.h"

#include <algorithm>

#include "base/check.h"
#include "base/mesh.h"
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
  stage.own_input = !stages_.empty() && stages_.back().own_output;
  stage.own_output = layer->sample_rows() == SampleRows::kAsInput
                         ? stage.own_input
                         : layer->sample_rows() == SampleRows::kOwn;
  stage.name = std::move(name);
  stage.layer = std::move(layer);
  stages_.push_back(std::move(stage));
}

template <typename T>
void Model<T>::add_tied(std::string name, std::unique_ptr<Layer<T>> layer,
                        std::string_view parameter) {
  const auto found = std::ranges::find(table_, parameter, &ParameterInfo::name);
  GW_CHECK(found != table_.end());
  append_to(static_cast<int>(found - table_.begin()), std::move(name), std::move(layer),
            output().elems());
}

template <typename T>
void Model<T>::append_to(int parameter, std::string name, std::shared_ptr<const Layer<T>> layer,
                         std::int64_t input) {
  GW_CHECK(layer->parameters().empty());
  append(std::move(name), std::move(layer), input);
  const ParameterInfo& info = table_[static_cast<std::size_t>(parameter)];
  Stage& stage = stages_.back();
  stage.tied = parameter;
  stage.params = {info.offset, info.shape.elems()};
  for (const int use : uses_) {
    stage.uses_before += table_[static_cast<std::size_t>(use)].shape.elems();
  }
  uses_.push_back(parameter);
}

template <typename T>
GradientTable Model<T>::gradients() const {
  GradientTable all{table_, uses_};
  for (const Stage& stage : stages_) {
    if (stage.tied < 0) continue;
    ParameterInfo use = table_[static_cast<std::size_t>(stage.tied)];
    use.name = stage.name + " of " + use.name;
    use.offset = parameter_elems(table_) + stage.uses_before;
    all.tensors.push_back(std::move(use));
  }
  return all;
}

// A layer of `whole`, with how its parameters start.
template <typename T>
void Model<T>::append_part(const Model& whole, std::size_t layer) {
  const Stage& stage = whole.stages_[layer];
  if (stage.tied < 0) {
    append(stage.name, stage.layer, stage.input);
    stages_.back().weight = stage.weight;
    const auto count = static_cast<std::size_t>(stage.end_parameter - stage.first_parameter);
    for (std::size_t i = 0; i < count; ++i) {
      const auto from = static_cast<std::size_t>(stage.first_parameter) + i;
      table_[table_.size() - count + i].init = whole.table_[from].init;
      table_[table_.size() - count + i].summed = whole.table_[from].summed;
    }
    return;
  }
  ParameterInfo info = whole.table_[static_cast<std::size_t>(stage.tied)];
  const auto here = std::ranges::find(table_, info.name, &ParameterInfo::name);
  if (here != table_.end()) {
    append_to(static_cast<int>(here - table_.begin()), stage.name, stage.layer, stage.input);
    stages_.back().weight = stage.weight;
    return;
  }
  append(stage.name, stage.layer, stage.input);
  stages_.back().weight = stage.weight;
  Stage& last = stages_.back();
  info.offset = parameter_elems(table_);
  last.params = {info.offset, info.shape.elems()};
  table_.push_back(std::move(info));
  last.end_parameter = static_cast<int>(table_.size());
}

template <typename T>
Model<T> Model<T>::part(std::span<const LayerRange> ranges) const {
  Model made(input_);
  made.loss_ = loss_;
  made.shared_by_ = shared_by_;
  made.divides_data_ = divides_data_;
  // Outputs are those of the last layer.
  if (!ranges.empty() && ranges.back().end == stages_.size()) made.class_share_ = class_share_;
  made.reads_data_ = reads_data_ && !ranges.empty() && ranges.front().begin == 0;
  for (const LayerRange& range : ranges) {
    for (std::size_t layer = range.begin; layer < range.end; ++layer) {
      if (made.stages_.empty() && layer > 0) made.input_ = stages_[layer - 1].layer->output();
      made.append_part(*this, layer);
    }
  }
  return made;
}

template <typename T>
void Model<T>::set_init(const std::function<void(ParameterInfo&)>& change) {
  for (ParameterInfo& info : table_) change(info);
}

template <typename T>
auto Model<T>::weight(std::size_t layer) const -> Weight {
  const Stage& stage = stages_[layer];
  if (stage.weight) return *stage.weight;
  return {stage.layer->saved_elems(kWeighedRows), stage.layer->cost().forward_macs};
}

template <typename T>
void Model<T>::weigh_as(const Model& whole) {
  for (Stage& stage : stages_) {
    const auto same = std::ranges::find(whole.stages_, stage.name, &Stage::name);
    stage.weight = same == whole.stages_.end()
                       ? Weight()
                       : whole.weight(static_cast<std::size_t>(same - whole.stages_.begin()));
  }
}

template <typename T>
Status Model<T>::check_placement() const {
  Placement now = Placement::invariant();
  for (const Stage& stage : stages_) {
    const auto [first, end] = std::pair(static_cast<std::size_t>(stage.first_parameter),
                                        static_cast<std::size_t>(stage.end_parameter));
    const auto next = stage.layer->placement(now, std::span(table_).subspan(first, end - first));
    if (!next.has_value()) return next.error().with_context("layer '" + stage.name + "'");
    now = next.value();
  }
  const Placement wanted = class_share_ ? Placement::by_features() : Placement::invariant();
  if (now == wanted) return {};
  return {Code::kInvalidArgument, "outputs are " + to_string(now) + " (expected " +
                                      to_string(wanted) + ", as the loss reads them)"};
}

template <typename T>
Status Model<T>::check_peers(const LayerPeers* peers) const {
  const int ranks = peers == nullptr ? 1 : peers->ranks();
  if (ranks == shared_by_) return {};
  return {Code::kInvalidArgument,
          format("%d ranks for a model that %d share (expected as many)", ranks, shared_by_)};
}

template <typename T>
SampleShape Model<T>::output() const {
  return stages_.empty() ? input_ : stages_.back().layer->output();
}

template <typename T>
std::int64_t Model<T>::level_rows(std::size_t level, std::int64_t rows) const {
  const bool own = level > 0 && stages_[level - 1].own_output;
  return own ? longest_part(rows, shared_by_) : rows;
}

template <typename T>
Status Model<T>::check_rows(std::int64_t rows) const {
  const auto divided = std::ranges::find(stages_, true, &Stage::own_output);
  if (divided == stages_.end() || divides_evenly(rows, shared_by_)) return {};
  return {
      Code::kInvalidArgument,
      format("layer '%s' divides micro-batches of %lld samples among %d ranks of tp (expected a "
             "multiple of the ranks)",
             divided->name.c_str(), static_cast<long long>(rows), shared_by_)};
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
  for (std::size_t level = 0; level <= stages_.size(); ++level) {
    sizes.rows.push_back(level_rows(level, max_rows));
  }
  for (std::size_t level = range.begin; level < range.end; ++level) {
    const Layer<T>& layer = *stages_[level].layer;
    if (level == range.begin) sizes.widths[level] = stages_[level].input;
    sizes.widths[level + 1] = layer.output().elems();
    const std::int64_t rows = sizes.rows[level];
    sizes.saved[level] = layer.saved_elems(rows);
    sizes.stash[level] = layer.stash_elems(rows);
    sizes.scratch = std::max(sizes.scratch, layer.scratch_elems(rows, where));
  }
  sizes.segments = std::move(segments);
  return sizes;
}

template <typename T>
LayerPass<T> Model<T>::layer_pass(const ModelPass<T>& pass, std::size_t level) const {
  const Stage& stage = stages_[level];
  Activations<T>& memory = *pass.activations;
  PassContext context = pass.context;
  if (stage.own_input) {
    context.first_sample += equal_part(pass.rows, shared_by_, pass.peers->rank()).begin;
  }
  return {level_rows(level, pass.rows),
          stage.params.of(pass.params),
          memory.values(level, level_rows(level, pass.rows)),
          memory.values(level + 1, level_rows(level + 1, pass.rows)),
          memory.scratch(),
          memory.saved(level),
          memory.stash(level),
          stage.buffers.of(pass.buffers),
          stage.statistics.of(pass.statistics),
          context,
          pass.device,
          pass.peers,
          pass.rows};
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

template <typename T>
std::span<T> Model<T>::gradients_of(const Stage& stage, std::span<T> grads) const {
  Part written = stage.params;
  if (stage.tied >= 0) written.offset = parameter_elems(table_) + stage.uses_before;
  return written.of(grads);
}

template <typename T>
Status Model<T>::tell_ready(std::size_t level, const Ready& ready) const {
  const Stage& stage = stages_[level];
  if (stage.tied >= 0) {
    const auto before = std::ranges::count_if(std::span(stages_).first(level),
                                              [](const Stage& other) { return other.tied >= 0; });
    return ready(static_cast<int>(table_.size()) + static_cast<int>(before));
  }
  for (int index = stage.end_parameter; index-- > stage.first_parameter;) GW_TRY(ready(index));
  return {};
}

// The gradients of one layer's parameters, and the word that they are there.
template <typename T>
Status Model<T>::derive_params(const ModelPass<T>& pass, std::size_t level, std::span<T> grads,
                               const Ready& ready) const {
  const Stage& stage = stages_[level];
  if (stage.params.elems == 0) return {};
  const std::span<const T> dy =
      pass.activations->deltas(level + 1, level_rows(level + 1, pass.rows));
  {
    const TimedSpan span = timed(pass, TrainerSpan::Kind::kBackwardParams, stage.name);
    stage.layer->backward_params(layer_pass(pass, level), dy, gradients_of(stage, grads));
  }
  if (pass.device != nullptr) GW_TRY(pass.device->status());
  if (pass.peers != nullptr) GW_TRY(pass.peers->status());
  return tell_ready(level, ready);
}

template <typename T>
std::size_t Model<T>::last_of_backward() const {
  if (!reads_data_) return 0;
  std::size_t level = stages_.size();
  while (level > 0 && stages_[level - 1].first_parameter > 0) --level;
  return level == 0 ? 0 : level - 1;
}

// The derivative by the input first: it is added up over the peers while the parameters' are
// computed.
template <typename T>
Status Model<T>::backward_among_peers(const ModelPass<T>& pass, std::size_t layer,
                                      std::span<T> grads, const Ready& ready) const {
  const Stage& stage = stages_[layer];
  Activations<T>& memory = *pass.activations;
  {
    const TimedSpan span = timed(pass, TrainerSpan::Kind::kBackward, stage.name);
    stage.layer->backward(layer_pass(pass, layer),
                          memory.deltas(layer + 1, level_rows(layer + 1, pass.rows)),
                          memory.deltas(layer, level_rows(layer, pass.rows)),
                          stage.params.elems == 0 ? std::span<T>() : gradients_of(stage, grads));
  }
  if (pass.device != nullptr) GW_TRY(pass.device->status());
  GW_TRY(pass.peers->status());
  return stage.params.elems == 0 ? Status() : tell_ready(layer, ready);
}

template <typename T>
Status Model<T>::backward(const ModelPass<T>& pass, std::size_t layer, std::span<T> grads,
                          const Ready& ready) const {
  const bool input_first = stages_[layer].layer->params_read_stash(level_rows(layer, pass.rows));
  if (pass.peers != nullptr && (derives_input(layer) || input_first)) {
    return backward_among_peers(pass, layer, grads, ready);
  }
  // Parameters first where the layer allows: their gradients can travel while the way back goes on.
  if (!input_first) GW_TRY(derive_params(pass, layer, grads, ready));
  // Nobody reads the derivative by the data, nor anything below the first parameters.
  if (derives_input(layer) || input_first) backward_input(pass, {layer, layer + 1});
  return input_first ? derive_params(pass, layer, grads, ready) : Status();
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
    const std::span<const T> dy = memory.deltas(level + 1, level_rows(level + 1, pass.rows));
    const TimedSpan span = timed(pass, TrainerSpan::Kind::kBackwardInput, stages_[level].name);
    const LayerPass<T> own = layer_pass(pass, level);
    const std::span<T> dx = memory.deltas(level, level_rows(level, pass.rows));
    stages_[level].layer->backward_input(own, dy, dx);
    stages_[level].layer->finish_input(own, dy, dx);
  }
}

template <typename T>
Status Model<T>::backward_params(const ModelPass<T>& pass, LayerRange range, std::span<T> grads,
                                 const Ready& ready) const {
  GW_CHECK(pass.activations->room() == DeltaRoom::kEveryLevel);
  for (std::size_t level = range.end; level-- > range.begin;) {
    GW_TRY(derive_params(pass, level, grads, ready));
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
