// Initial parameters whose scale keeps activations' and gradients' variances through the layers.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/parameters.h"

namespace gradwire {

// Weights (out, in, ...) are U(-a, a) with a = sqrt(6 / (fan in + fan out)), vectors are 0. A pure
// function of (seed, name, element).
// Source: Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural
// networks", AISTATS 2010, equation (16).
void xavier_parameters(const ParameterTable& table, std::uint64_t seed, std::span<float> flat);

}  // namespace gradwire
