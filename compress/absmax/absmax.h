// absmax: each element as a level of a grid that is symmetric about zero and ends at the largest
// magnitude of its bucket. Payload, rounding and NaN: compress/uniform/uniform_grid.h.
//
// bits + 32/bucket bits an element. 2^(bits-1) - 1 levels on either side and zero: +max is a level
// as -max is, so nothing is clipped to one side (grids of 2^bits levels clip +max and drift
// downwards), and zero stays zero. One bit has no level at zero: nearest rounding decodes to half
// the largest magnitude with the element's sign, stochastic rounding to all of it.
// Bounds, n elements a bucket, s = 2^(bits-1) - 1: nearest |x - C(x)|^2 <= min(1 - 1/n, n/(4 s^2))
// |x|^2; stochastic, a variance of min(n/(4 s^2), sqrt(n)/(2 s)) |x|^2; one bit: |x|^2 (guarded),
// and n - 1.
// Source: Dettmers et al., "8-bit optimizers via block-wise quantization", ICLR 2022, section 2
// (block-wise absmax); the grid without the clipped end is the restricted range of Jacob et al.,
// "Quantization and training of neural networks for efficient integer-arithmetic-only inference",
// CVPR 2018, section 3.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method absmax_method();

}  // namespace gradwire
