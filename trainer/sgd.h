// Stochastic gradient descent with heavy-ball momentum, element by element over flat buffers.
#pragma once

#include <span>

namespace gradwire {

// m <- momentum m + g. The running direction, on the optimizer's side or a worker's.
void add_momentum(std::span<float> m, std::span<const float> g, float momentum);

// x <- x - lr d.
void descend(std::span<float> x, std::span<const float> d, float lr);

// Both in one pass over memory: m <- momentum m + g, x <- x - lr m.
void descend_with_momentum(std::span<float> x, std::span<float> m, std::span<const float> g,
                           float lr, float momentum);

}  // namespace gradwire
