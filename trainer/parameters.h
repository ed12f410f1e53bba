// The parameters of a model: one table, one flat buffer. Gradients and momentum use the same
// layout, so an aggregator's dense bucket is a slice of memory and the optimizer is one loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/tensor.h"
#include "trainer/tensor_box.h"

namespace gradwire {

// What a tensor's elements are before the first step.
struct Init {
  enum class Kind : std::uint8_t {
    kFanIn,     // U(-1/sqrt(fan_in), +1/sqrt(fan_in))
    kUniform,   // U(-value, +value)
    kNormal,    // N(0, value^2)
    kConstant,  // value
  };
  Kind kind = Kind::kFanIn;
  double value = 0;
};

struct ParameterInfo {
  std::string name;         // "fc1.weight"
  Shape shape;              // of what is here: weights (out, in) or (out, in, kernel, kernel),
                            // biases (out)
  std::int64_t fan_in = 1;  // inputs that one output of the whole layer sums over; a bias has its
                            // weight's
  std::int64_t offset = 0;  // of its first element in the flat buffer, in elements
  Init init = {};
  // Which elements of the whole tensor these are, shape.elems() of them; none: the tensor is here
  // as a whole.
  std::optional<TensorBox> box = {};
  // Ranks that share tensors each have all of it, and compute of its gradient what comes of their
  // own part of the data (positions, samples, tiles): the gradient is the sum over them
  // (Scope::kTensor).
  bool summed = false;
};

// Of a parameter: the box, and the shape that all ranks know it by.
TensorBox box_of(const ParameterInfo& info);
Shape whole_shape(const ParameterInfo& info);

// In order of registration: offsets ascend without gaps.
using ParameterTable = std::vector<ParameterInfo>;

std::int64_t parameter_elems(const ParameterTable& table);

// What a pass back through a model writes: a gradient for every parameter and, behind those, one
// for every use of a parameter by a layer that is tied to its owner. The gradient of such a
// parameter is their sum.
struct GradientTable {
  ParameterTable tensors = {};
  std::vector<int> tied = {};  // of each use, in the tensors' order: the parameter

  int parameters() const { return static_cast<int>(tensors.size() - tied.size()); }
  // The parameter that gradient `index` belongs to.
  int parameter_of(int index) const {
    return index < parameters() ? index : tied[static_cast<std::size_t>(index - parameters())];
  }
  std::int64_t parameter_elems() const;  // of the parameters' own gradients
  std::int64_t elems() const;
};

// Appends `local`, its names behind "prefix.", its offsets behind what was there; returns the
// offset of its first element.
std::int64_t append_table(ParameterTable& table, std::string_view prefix,
                          const ParameterTable& local);

// One view per parameter into `flat`, which has parameter_elems(table) elements of `device`.
std::vector<NamedTensor> named_tensors(const ParameterTable& table, std::span<float> flat,
                                       Device device = {});

// Every element as its tensor's Init says, a pure function of (seed, name, element of the whole
// tensor): the same for any number of ranks, however they share it, and any order of
// initialisation. Weights and biases alike.
template <typename T>
void init_parameters(const ParameterTable& table, std::uint64_t seed, std::span<T> flat);
// Likewise those of one parameter.
void init_parameter(const ParameterInfo& info, std::uint64_t seed, std::span<float> values);

// The schemes of init_parameters by name, for tables of weights and biases; what starts as a
// constant (norms) stays as it is.
//   "uniform": kFanIn, weights and biases.
//   "xavier":  weights U(+-sqrt(6 / (fan_in + fan_out))), biases 0. Source: Glorot and Bengio,
//              AISTATS 2010, eq. 16.
//   "kaiming": weights N(0, 2 / fan_in), biases 0. Source: He et al., ICCV 2015, eq. 10.
//   "gpt2":    weights N(0, 0.02^2), biases 0.
// Returns false for another name, with nothing changed.
bool set_init(ParameterInfo& info, std::string_view scheme);

}  // namespace gradwire
