// The parameters of a model: one table, one flat buffer. Gradients and momentum use the same
// layout, so an aggregator's dense bucket is a slice of memory and the optimizer is one loop.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gradwire/tensor.h"

namespace gradwire {

struct ParameterInfo {
  std::string name;         // "fc1.weight"
  Shape shape;              // weights (out, in) or (out, in, kernel, kernel), biases (out)
  std::int64_t fan_in = 1;  // inputs that one output sums over; a bias has its weight's
  std::int64_t offset = 0;  // of its first element in the flat buffer, in elements
};

// In order of registration: offsets ascend without gaps.
using ParameterTable = std::vector<ParameterInfo>;

std::int64_t parameter_elems(const ParameterTable& table);

// One view per parameter into `flat`, which has parameter_elems(table) elements.
std::vector<NamedTensor> named_tensors(const ParameterTable& table, std::span<float> flat);

// Every element U(-1/sqrt(fan_in), +1/sqrt(fan_in)), a pure function of (seed, name, element): the
// same for any number of ranks and any order of initialisation. Weights and biases alike.
template <typename T>
void init_parameters(const ParameterTable& table, std::uint64_t seed, std::span<T> flat);

}  // namespace gradwire
