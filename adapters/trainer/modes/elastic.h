// Elastic averaging, element by element: workers W_i and a centre pull at each other.
//
//   e_i = rho (W_i - C)             from both as they were before the step
//   W_i <- W_i - lr (dW_i + e_i)    (1)
//   C   <- C + lr sum over i of e_i (2)
//
// What a worker loses by its e_i the centre wins: with dW = 0 the sum of all W_i and C stays. With
// p workers the centre's step is stable while lr rho p <= 1.
// Source: Zhang, Choromanska, LeCun, "Deep learning with elastic averaging SGD", NeurIPS 2015,
// equations (3) and (4), with lr rho for its alpha; You, Buluc, Demmel, "Scaling deep learning on
// GPU and Knights Landing clusters", SC 2017, equations (1) and (2).
#pragma once

#include <span>

namespace gradwire {

// pull = rho (w - centre).
void elastic_pull(std::span<const float> w, std::span<const float> centre, float rho,
                  std::span<float> pull);

// (1): w <- w - lr (direction + pull).
void elastic_descend(std::span<float> w, std::span<const float> direction,
                     std::span<const float> pull, float lr);

// (2): centre <- centre + lr pulls, of one worker or summed over several.
void elastic_attract(std::span<float> centre, std::span<const float> pulls, float lr);

}  // namespace gradwire
