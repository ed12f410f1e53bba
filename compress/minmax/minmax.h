// minmax: each element as one of 2^bits levels between the smallest and the largest element of its
// bucket. Payload, rounding and NaN: compress/uniform/uniform_grid.h.
//
// bits + 64/bucket bits an element (fp32). Zero is in general no level: on heavy tails a coarse
// grid moves every small element, and the remedies are spikes=1 (the two outliers travel as
// floats), transform=hadamard (outliers are spread over the bucket), absmax, or error feedback.
// The minimum is subtracted before anything is scaled, so an offset far above the spread costs no
// resolution.
// Bounds, n elements a bucket, L = 2^bits - 1: (max - min)^2 <= 2 |x|^2, so nearest rounding has
// |x - C(x)|^2 <= n/(2 L^2) |x|^2 and stochastic rounding that variance; with guard=1 nearest
// rounding never exceeds |x|^2.
// Source: the format of CGX: Markov, Ramezanikebrya, Alistarh, "CGX: Adaptive system support for
// communication-efficient deep learning", Middleware 2022, section 3; spikes: Li et al., "Flash
// Communication V2", arXiv, 2025 (spike reserving). Deviations: (base, range) instead of (base,
// level), so that both ends are exact; fp32 whatever the element; the guard.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method minmax_method();

}  // namespace gradwire
