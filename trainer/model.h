// A chain of layers with one table of parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "trainer/activations.h"
#include "trainer/layers/layer.h"
#include "trainer/parameters.h"

namespace gradwire {

// Immutable once built: it holds shapes, not values, so threads may share it.
template <typename T>
class Model {
 public:
  explicit Model(SampleShape input) : input_(input) {}

  // Appends a layer that reads what the last one wrote. `name` prefixes its parameters:
  // "fc1" gives "fc1.weight".
  void add(std::string name, std::unique_ptr<Layer<T>> layer);

  SampleShape input() const { return input_; }
  SampleShape output() const;
  const ParameterTable& parameters() const { return table_; }
  Result<Activations<T>> make_activations(std::int64_t max_rows) const;

  // Reads activations.values(0), fills the values of all levels; returns the logits
  // (rows, classes).
  std::span<const T> forward(std::span<const T> params, std::int64_t rows,
                             Activations<T>& activations) const;

  // Called when the gradient of parameter `index` is complete in `grads`.
  using Ready = std::function<Status(int index)>;
  // After forward() on the same rows: activations.deltas() of the last level hold the derivative by
  // the logits. Overwrites `grads`. `ready` is called from the last parameter to the first, each as
  // soon as it is complete; its error ends the call.
  Status backward(std::span<const T> params, std::int64_t rows, Activations<T>& activations,
                  std::span<T> grads, const Ready& ready) const;

  // The level of the logits: activations.deltas(last_level(), rows) is backward's input.
  std::size_t last_level() const { return stages_.size(); }

 private:
  struct Stage {
    std::unique_ptr<Layer<T>> layer;
    int first_parameter;  // its parameters are [first_parameter, end_parameter)
    int end_parameter;
    std::int64_t offset;  // of its block in the flat buffer
    std::int64_t elems;
  };
  LayerPass<T> pass(std::size_t level, std::span<const T> params, std::int64_t rows,
                    Activations<T>& activations) const;

  SampleShape input_;
  std::vector<Stage> stages_;
  ParameterTable table_;
};

}  // namespace gradwire
