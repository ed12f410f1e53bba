#include "trainer/model.h"

#include <algorithm>

namespace gradwire {

template <typename T>
void Model<T>::add(std::string name, std::unique_ptr<Layer<T>> layer) {
  Stage stage{};
  stage.first_parameter = static_cast<int>(table_.size());
  stage.offset = parameter_elems(table_);
  for (ParameterInfo info : layer->parameters()) {
    info.name = name + "." + info.name;
    info.offset += stage.offset;
    table_.push_back(std::move(info));
  }
  stage.end_parameter = static_cast<int>(table_.size());
  stage.elems = parameter_elems(table_) - stage.offset;
  stage.layer = std::move(layer);
  stages_.push_back(std::move(stage));
}

template <typename T>
SampleShape Model<T>::output() const {
  return stages_.empty() ? input_ : stages_.back().layer->output();
}

template <typename T>
Result<Activations<T>> Model<T>::make_activations(std::int64_t max_rows) const {
  std::vector<std::int64_t> widths{input_.elems()};
  std::int64_t scratch = 0;
  for (const Stage& stage : stages_) {
    widths.push_back(stage.layer->output().elems());
    scratch = std::max(scratch, stage.layer->scratch_elems());
  }
  return Activations<T>::create(widths, max_rows, scratch);
}

template <typename T>
LayerPass<T> Model<T>::pass(std::size_t level, std::span<const T> params, std::int64_t rows,
                            Activations<T>& activations) const {
  const Stage& stage = stages_[level];
  return {
      rows,
      params.subspan(static_cast<std::size_t>(stage.offset), static_cast<std::size_t>(stage.elems)),
      activations.values(level, rows), activations.values(level + 1, rows), activations.scratch()};
}

template <typename T>
std::span<const T> Model<T>::forward(std::span<const T> params, std::int64_t rows,
                                     Activations<T>& activations) const {
  for (std::size_t level = 0; level < stages_.size(); ++level) {
    stages_[level].layer->forward(pass(level, params, rows, activations));
  }
  return activations.values(last_level(), rows);
}

template <typename T>
Status Model<T>::backward(std::span<const T> params, std::int64_t rows, Activations<T>& activations,
                          std::span<T> grads, const Ready& ready) const {
  for (std::size_t level = stages_.size(); level-- > 0;) {
    const Stage& stage = stages_[level];
    const LayerPass<T> now = pass(level, params, rows, activations);
    const std::span<const T> dy = activations.deltas(level + 1, rows);
    // Parameters first: their gradients can travel while the way back goes on.
    if (stage.elems > 0) {
      stage.layer->backward_params(now, dy,
                                   grads.subspan(static_cast<std::size_t>(stage.offset),
                                                 static_cast<std::size_t>(stage.elems)));
      for (int index = stage.end_parameter; index-- > stage.first_parameter;) GW_TRY(ready(index));
    }
    // Nobody reads the derivative by the data, nor anything below the first parameters.
    if (stage.first_parameter == 0) break;
    stage.layer->backward_input(now, dy, activations.deltas(level, rows));
  }
  return {};
}

template class Model<float>;
template class Model<double>;

}  // namespace gradwire
